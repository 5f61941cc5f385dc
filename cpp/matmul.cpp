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

void matmul(const u64* a, const u64* b, u64* c, std::size_t n, std::size_t d, std::size_t k) {
    if (d == 0) {
        std::memset(c, 0, n * k * sizeof(u64));
        return;
    }
    const Scratch panel(DEPTH * PANEL);
    for (std::size_t j = 0; j < k; j += PANEL) {
        const std::size_t columns = smaller(PANEL, k - j);
        const bool in_place = columns == PANEL && n <= ROWS;  // packing pays only when the panel is used again
        for (std::size_t p = 0; p < d; p += DEPTH) {
            const std::size_t depth = smaller(DEPTH, d - p);
            const u64* from = b + p * k + j;
            if (!in_place) pack_panel(from, k, depth, columns, panel.get());
            multiply_panel(n, a + p, d, in_place ? from : panel.get(), in_place ? k : PANEL, depth, c + j, k,
                           columns, p != 0);
        }
    }
}

}  // namespace hdcos::HDCOS_ISA
