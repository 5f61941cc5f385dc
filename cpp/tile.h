// The register tile: rows of A times a panel of B, kept in registers over the whole depth.
//
// A panel is `depth` rows of PANEL words, in one piece or wherever its class finds them. The tile is ROWS x PANEL
// accumulators.
#pragma once

#include "product.h"

namespace hdcos::HDCOS_ISA {

#if defined(__AVX512DQ__)
constexpr int ROWS = 6;
constexpr int SPAN = 4;
#else
constexpr int ROWS = 2;
constexpr int SPAN = 2;
#endif
constexpr std::size_t PANEL = SPAN * LANES;
constexpr std::size_t DEPTH = 256;

// A panel whose rows lie `stride` words apart.
struct Panel {
    const u64* words;
    std::size_t stride;

    Vec at(std::size_t row, int vector) const { return load(words + row * stride + vector * LANES); }
};

// A tile of R rows and S vectors.
template <int R, int S, class B>
static void tile(const u64* a, std::size_t lda, const B& panel, std::size_t depth, u64* c, std::size_t ldc,
                 std::size_t columns, bool add) {
    Sum sum[R][S];
    for (std::size_t p = 0; p < depth; ++p) {
        Vec b[S];
#pragma GCC unroll 4
        for (int s = 0; s < S; ++s) b[s] = panel.at(p, s);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
            const Left left(a[r * lda + p]);
#pragma GCC unroll 4
            for (int s = 0; s < S; ++s) sum[r][s].add(left, b[s]);
        }
    }
    for (int r = 0; r < R; ++r) {
        if (columns == std::size_t{S * LANES}) {
            for (int s = 0; s < S; ++s) {
                u64* to = c + r * ldc + s * LANES;
                store(to, add ? load(to) + sum[r][s].total() : sum[r][s].total());
            }
        } else {
            u64 row[S * LANES];
            for (int s = 0; s < S; ++s) store(row + s * LANES, sum[r][s].total());
            for (std::size_t j = 0; j < columns; ++j) c[r * ldc + j] = row[j] + (add ? c[r * ldc + j] : 0);
        }
    }
}

template <int S, int R, class B>
static void rows_of(std::size_t rows, const u64* a, std::size_t lda, const B& panel, std::size_t depth, u64* c,
                    std::size_t ldc, std::size_t columns, bool add) {
    if (rows == std::size_t{R}) return tile<R, S>(a, lda, panel, depth, c, ldc, columns, add);
    if constexpr (R > 1) rows_of<S, R - 1>(rows, a, lda, panel, depth, c, ldc, columns, add);
}

template <int S, class B>
static void tile_of(std::size_t rows, const u64* a, std::size_t lda, const B& panel, std::size_t depth, u64* c,
                    std::size_t ldc, std::size_t columns, bool add) {
    if constexpr (S > 1) {
        if (columns <= std::size_t{(S - 1) * LANES})
            return tile_of<S - 1>(rows, a, lda, panel, depth, c, ldc, columns, add);
    }
    rows_of<S, ROWS>(rows, a, lda, panel, depth, c, ldc, columns, add);
}

// c (rows, columns) = or += a (rows, depth) times the panel; columns <= PANEL.
template <class B>
static void multiply_panel(std::size_t rows, const u64* a, std::size_t lda, const B& panel, std::size_t depth, u64* c,
                           std::size_t ldc, std::size_t columns, bool add) {
    for (std::size_t i = 0; i < rows; i += ROWS)
        tile_of<SPAN>(smaller(ROWS, rows - i), a + i * lda, lda, panel, depth, c + i * ldc, ldc, columns, add);
}

}  // namespace hdcos::HDCOS_ISA
