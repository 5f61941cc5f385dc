// Fast Walsh-Hadamard transform: few passes over a row, many levels in registers per pass.
//
// Rows of up to four vectors are done in registers. Of longer ones the first pass takes BLOCK words into eight vectors:
// the levels inside a vector by shuffles, three more between the vectors. Every later pass takes RADIX vectors at equal
// distance. Rows longer than the cache go block by block.
#include "vector.h"

#include "isa.h"

namespace hdcos::HDCOS_ISA {

constexpr std::size_t BLOCK = 8 * LANES;
constexpr std::size_t CACHED = 2048;
constexpr std::size_t RADIX = LANES == 8 ? 16 : 8;

static inline Vec within(Vec v) {
#if defined(__AVX512DQ__)
    Vec t = HDCOS_SHUFFLE(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
    v = HDCOS_SHUFFLE(t + v, t - v, 0, 9, 2, 11, 4, 13, 6, 15);
    t = HDCOS_SHUFFLE(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
    v = HDCOS_SHUFFLE(t + v, t - v, 0, 1, 10, 11, 4, 5, 14, 15);
    t = HDCOS_SHUFFLE(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
    return HDCOS_SHUFFLE(t + v, t - v, 0, 1, 2, 3, 12, 13, 14, 15);
#elif defined(__AVX2__)
    Vec t = HDCOS_SHUFFLE(v, v, 1, 0, 3, 2);
    v = HDCOS_SHUFFLE(t + v, t - v, 0, 5, 2, 7);
    t = HDCOS_SHUFFLE(v, v, 2, 3, 0, 1);
    return HDCOS_SHUFFLE(t + v, t - v, 0, 1, 6, 7);
#else
    const Vec t = HDCOS_SHUFFLE(v, v, 1, 0);
    return HDCOS_SHUFFLE(t + v, t - v, 0, 3);
#endif
}

template <int R>
static inline void between(Vec* v) {
#pragma GCC unroll 4
    for (int half = 1; half < R; half *= 2)
#pragma GCC unroll 16
        for (int i = 0; i < R; ++i)
            if (!(i & half)) {
                const Vec low = v[i], high = v[i + half];
                v[i] = low + high;
                v[i + half] = low - high;
            }
}

static void first_pass(const u64* x, u64* out, std::size_t n) {
    for (std::size_t i = 0; i < n; i += BLOCK) {
        Vec v[8];
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) v[j] = within(load(x + i + j * LANES));
        between<8>(v);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) store(out + i + j * LANES, v[j]);
    }
}

// log2(R) levels, from distance `step` upwards.
template <int R>
static void pass(u64* row, std::size_t n, std::size_t step) {
    for (std::size_t i = 0; i < n; i += R * step)
        for (std::size_t j = i; j < i + step; j += LANES) {
            Vec v[R];
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) v[r] = load(row + j + r * step);
            between<R>(v);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) store(row + j + r * step, v[r]);
        }
}

// The levels from distance `step` up to the whole of n.
static void later_passes(u64* row, std::size_t n, std::size_t step) {
    while (step < n) {
        const std::size_t left = n / step;
        if (RADIX == 16 && left >= 16 && left != 32) pass<16>(row, n, step), step *= 16;
        else if (left >= 8 && left != 16) pass<8>(row, n, step), step *= 8;
        else if (left >= 4) pass<4>(row, n, step), step *= 4;
        else pass<2>(row, n, step), step *= 2;
    }
}

// Rows of R vectors, each within registers.
template <int R>
static void few_vectors(const u64* x, u64* out, std::size_t rows) {
    for (std::size_t row = 0; row < rows; ++row, x += R * LANES, out += R * LANES) {
        Vec v[R];
#pragma GCC unroll 4
        for (int j = 0; j < R; ++j) v[j] = within(load(x + j * LANES));
        between<R>(v);
#pragma GCC unroll 4
        for (int j = 0; j < R; ++j) store(out + j * LANES, v[j]);
    }
}

// A row shorter than a vector.
static void small(const u64* x, u64* out, std::size_t n) {
    u64 v[LANES];
    for (std::size_t i = 0; i < n; ++i) v[i] = x[i];
    for (std::size_t half = 1; half < n; half *= 2)
        for (std::size_t i = 0; i < n; i += 2 * half)
            for (std::size_t j = i; j < i + half; ++j) {
                const u64 low = v[j], high = v[j + half];
                v[j] = low + high;
                v[j + half] = low - high;
            }
    for (std::size_t i = 0; i < n; ++i) out[i] = v[i];
}

void walsh_hadamard(const u64* x, u64* out, std::size_t rows, std::size_t n) {
    if (n == LANES) return few_vectors<1>(x, out, rows);
    if (n == 2 * LANES) return few_vectors<2>(x, out, rows);
    if (n == 4 * LANES) return few_vectors<4>(x, out, rows);
    for (std::size_t row = 0; row < rows; ++row, x += n, out += n) {
        if (n < LANES) {
            small(x, out, n);
            continue;
        }
        const std::size_t cached = smaller(n, CACHED);
        for (std::size_t i = 0; i < n; i += cached) {
            first_pass(x + i, out + i, cached);
            later_passes(out + i, cached, BLOCK);
        }
        later_passes(out, n, cached);
    }
}

}  // namespace hdcos::HDCOS_ISA
