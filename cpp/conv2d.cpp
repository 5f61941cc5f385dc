// Convolution modulo 2**64: the weights times panels of image patches.
//
// Where every vector of output pixels comes from neighbours in the image, patches are read from the image itself;
// otherwise a panel of them is gathered first.
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

// A panel that was never gathered: each vector of pixels has a corner, each row of the patches an offset from it.
struct InImage {
    const u64* words;
    const std::size_t* offset;
    const std::size_t* corner;

    Vec at(std::size_t row, int vector) const { return load(words + offset[row] + corner[vector * LANES]); }
};

// Offsets of the window's words from its top left corner, channel after channel of a group.
static void offsets(const Conv& s, const Padded& image, std::size_t* out) {
    for (std::size_t c = 0; c < s.channels / s.groups; ++c)
        for (std::size_t u = 0; u < s.window_height; ++u)
            for (std::size_t v = 0; v < s.window_width; ++v)
                *out++ = (c * image.height + u * s.dilation) * image.width + v * s.dilation;
}

void conv2d(const u64* x, const u64* weight, u64* out, const Conv& s) {
    const std::size_t channels = s.channels / s.groups, outputs = s.outputs / s.groups;
    const std::size_t total = channels * s.window_height * s.window_width, pixels = s.out_height * s.out_width;
    if (total == 0) {
        std::memset(out, 0, s.images * s.outputs * pixels * sizeof(u64));
        return;
    }
    Padded image(s);
    const bool direct = s.stride == 1 && s.out_width % LANES == 0;
    const Scratch panel(direct ? 0 : (DEPTH + 1) * PANEL), places(total);
    std::size_t* const offset = reinterpret_cast<std::size_t*>(places.get());
    offsets(s, image, offset);
    std::size_t corner[PANEL], start[PANEL + 1];
    for (std::size_t n = 0; n < s.images; ++n) {
        image.fill(x + n * s.channels * s.height * s.width, s);
        for (std::size_t first = 0; first < pixels; first += PANEL) {
            const std::size_t columns = smaller(PANEL, pixels - first);
            corners(s, image, first, columns, corner);
            const std::size_t runs = direct ? 0 : runs_of(corner, columns, start);
            for (std::size_t g = 0; g < s.groups; ++g) {
                const u64* const seen = image.words.get() + g * channels * image.height * image.width;
                const u64* const own = weight + g * outputs * total;
                u64* const to = out + (n * s.groups + g) * outputs * pixels + first;
                if (direct) {
                    multiply_panel(outputs, own, total, InImage{seen, offset, corner}, total, to, pixels, columns,
                                   false);
                    continue;
                }
                for (std::size_t p = 0; p < total; p += DEPTH) {
                    const std::size_t depth = smaller(DEPTH, total - p);
                    for (std::size_t q = 0; q < depth; ++q)
                        gather(seen + offset[p + q], corner, start, runs, columns, panel.get() + q * PANEL);
                    multiply_panel(outputs, own + p, total, Panel{panel.get(), PANEL}, depth, to, pixels, columns,
                                   p != 0);
                }
            }
        }
    }
}

}  // namespace hdcos::HDCOS_ISA
