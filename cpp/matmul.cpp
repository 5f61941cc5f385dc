// Matrix product modulo 2**64, by panels of B.
#include "tile.h"

#include "isa.h"

namespace hdcos::HDCOS_ISA {

static void pack_panel(const u64* b, std::size_t ldb, std::size_t depth, std::size_t columns, u64* panel) {
    for (std::size_t p = 0; p < depth; ++p) {
        for (std::size_t j = 0; j < columns; ++j) panel[p * PANEL + j] = b[p * ldb + j];
        for (std::size_t j = columns; j < PANEL; ++j) panel[p * PANEL + j] = 0;
    }
}

// One row of A: rows of B are read once, in order, several at a time; the sums of a block stay in the cache.
static void multiply_row(const u64* a, const u64* b, u64* c, std::size_t d, std::size_t k) {
    constexpr std::size_t BLOCK = 2048;
    constexpr int DEEP = 8;
    for (std::size_t first = 0; first < k; first += BLOCK) {
        const std::size_t columns = smaller(BLOCK, k - first), whole = columns / LANES * LANES;
        u64* to = c + first;
        std::memset(to, 0, columns * sizeof(u64));
        std::size_t p = 0;
        for (; p + DEEP <= d; p += DEEP) {
            const u64* from = b + p * k + first;
            for (std::size_t j = 0; j < whole; j += LANES) {
                Sum sum;
#pragma GCC unroll 8
                for (int q = 0; q < DEEP; ++q) sum.add(Left(a[p + q]), load(from + q * k + j));
                store(to + j, load(to + j) + sum.total());
            }
            for (std::size_t j = whole; j < columns; ++j)
                for (int q = 0; q < DEEP; ++q) to[j] += a[p + q] * from[q * k + j];
        }
        for (; p < d; ++p)
            for (std::size_t j = 0; j < columns; ++j) to[j] += a[p] * b[p * k + first + j];
    }
}

void matmul(const u64* a, const u64* b, u64* c, std::size_t n, std::size_t d, std::size_t k) {
    if (d == 0) {
        std::memset(c, 0, n * k * sizeof(u64));
        return;
    }
    if (n == 1) return multiply_row(a, b, c, d, k);
    const Scratch panel(DEPTH * PANEL);
    for (std::size_t j = 0; j < k; j += PANEL) {
        const std::size_t columns = smaller(PANEL, k - j);
        const bool in_place = columns == PANEL && n <= ROWS;  // packing pays only when the panel is used again
        for (std::size_t p = 0; p < d; p += DEPTH) {
            const std::size_t depth = smaller(DEPTH, d - p);
            const u64* from = b + p * k + j;
            if (!in_place) pack_panel(from, k, depth, columns, panel.get());
            const Panel rows = in_place ? Panel{from, k} : Panel{panel.get(), PANEL};
            multiply_panel(n, a + p, d, rows, depth, c + j, k, columns, p != 0);
        }
    }
}

}  // namespace hdcos::HDCOS_ISA
