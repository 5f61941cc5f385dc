// Convolution modulo 2**64: the weights times panels of image patches, gathered as they are needed.
#include "tile.h"

#include "isa.h"

namespace hdcos::HDCOS_ISA {

// One image with its zero border, and room for a vector load past its end.
struct Padded {
    std::size_t height, width;
    Scratch words;

    explicit Padded(const Conv& s)
        : height(s.height + 2 * s.padding), width(s.width + 2 * s.padding),
          words(s.channels * height * width + PANEL) {
        std::memset(words.get(), 0, (s.channels * height * width + PANEL) * sizeof(u64));
    }

    void fill(const u64* image, const Conv& s) {
        for (std::size_t c = 0; c < s.channels; ++c)
            for (std::size_t y = 0; y < s.height; ++y)
                std::memcpy(words.get() + (c * height + y + s.padding) * width + s.padding,
                            image + (c * s.height + y) * s.width, s.width * sizeof(u64));
    }
};

// Offsets of the top left corners of output pixels [first, first + columns).
static void corners(const Conv& s, const Padded& image, std::size_t first, std::size_t columns, std::size_t* out) {
    std::size_t y = first / s.out_width, x = first % s.out_width;
    for (std::size_t j = 0; j < columns; ++j) {
        out[j] = y * s.stride * image.width + x * s.stride;
        if (++x == s.out_width) x = 0, ++y;
    }
}

// Runs of neighbouring corners, so that a panel row is a few vector copies.
static std::size_t runs_of(const std::size_t* corner, std::size_t columns, std::size_t* start) {
    std::size_t runs = 0;
    for (std::size_t j = 0; j < columns; ++j)
        if (j == 0 || corner[j] != corner[j - 1] + 1) start[runs++] = j;
    start[runs] = columns;
    return runs;
}

static void gather(const u64* from, const std::size_t* corner, const std::size_t* start, std::size_t runs,
                   std::size_t columns, u64* row) {
    if (runs > columns / 2) {
        for (std::size_t j = 0; j < columns; ++j) row[j] = from[corner[j]];
        return;
    }
    for (std::size_t run = 0; run < runs; ++run)  // a copy may overshoot: the next run or row overwrites it
        for (std::size_t j = start[run]; j < start[run + 1]; j += LANES)
            store(row + j, load(from + corner[start[run]] + (j - start[run])));
}

void conv2d(const u64* x, const u64* weight, u64* out, const Conv& s) {
    const std::size_t window = s.window_height * s.window_width;
    const std::size_t total = s.channels * window, pixels = s.out_height * s.out_width;
    if (total == 0) {
        std::memset(out, 0, s.images * s.outputs * pixels * sizeof(u64));
        return;
    }
    Padded image(s);
    const Scratch panel((DEPTH + 1) * PANEL);
    std::size_t corner[PANEL], start[PANEL + 1];
    for (std::size_t n = 0; n < s.images; ++n) {
        image.fill(x + n * s.channels * s.height * s.width, s);
        for (std::size_t first = 0; first < pixels; first += PANEL) {
            const std::size_t columns = smaller(PANEL, pixels - first);
            corners(s, image, first, columns, corner);
            const std::size_t runs = runs_of(corner, columns, start);
            for (std::size_t p = 0; p < total; p += DEPTH) {
                const std::size_t depth = smaller(DEPTH, total - p);
                for (std::size_t q = 0; q < depth; ++q) {
                    const std::size_t c = (p + q) / window, u = (p + q) % window / s.window_width;
                    const std::size_t v = (p + q) % s.window_width;
                    gather(image.words.get() + (c * image.height + u) * image.width + v, corner, start, runs,
                           columns, panel.get() + q * PANEL);
                }
                multiply_panel(s.outputs, weight + p, total, panel.get(), PANEL, depth,
                               out + n * s.outputs * pixels + first, pixels, columns, p != 0);
            }
        }
    }
}

}  // namespace hdcos::HDCOS_ISA
