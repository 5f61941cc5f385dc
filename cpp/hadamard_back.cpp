// The gradient of a Hadamard layer after a cosine, from its opened gradient to the message of the layer before.
//
// Blocks of rows, inside the cache: x = E - m + t b from the opened D; [x cos r], [x sin r] and, times the weight, the
// gradient behind the cosine; its transform, rounded and masked. Sums over rows: x + m and the weight's step.
#include "vector.h"

#include "isa.h"
#include "lift.h"

namespace hdcos::HDCOS_ISA {

typedef i64 SignedVec __attribute__((vector_size(8 * LANES)));

constexpr std::size_t BLOCK_WORDS = 2048;

// x over 2**shift as a signed number, ties up.
static inline Vec rounded(Vec x, int shift, u64 half) {
    return reinterpret_cast<Vec>(reinterpret_cast<SignedVec>(x + half) >> shift);
}
static inline u64 rounded(u64 x, int shift, u64 half) {
    return static_cast<u64>(static_cast<i64>(x + half) >> shift);
}
static inline u64 half_of(int shift) { return shift ? u64{1} << (shift - 1) : 0; }

static inline Vec get(const u64* p, Vec*) { return load(p); }
static inline u64 get(const u64* p, u64*) { return *p; }
static inline void put(u64* p, Vec v) { store(p, v); }
static inline void put(u64* p, u64 v) { *p = v; }

// Units [i, i + lanes of V) of a row whose first unit is number `at`; a further term adds to the row.
template <class V, bool ADD>
static inline void unit(const FusedTerms& f, const BackFactors& k, std::size_t at, std::size_t i, const u64* E,
                        const u64* t, const u64* cos, const u64* sin, u64* step, u64* out) {
    const auto of = [](const u64* p) { return get(p, static_cast<V*>(nullptr)); };
    const std::size_t j = at + i;
    const V e = of(E + i), w = of(t + i), c = of(cos + i), n = of(sin + i), weight = of(f.weight + i);
    const V x_cos = e * of(f.cos + j) - of(f.m_cos + j) + w * of(f.b_cos + j);
    const V x_sin = e * of(f.sin + j) - of(f.m_sin + j) + w * of(f.b_sin + j);
    const V w_cos = weight * x_cos - (e * of(f.w_cos + j) - (of(f.m_wcos + j) << k.lift) + w * of(f.b_wcos + j));
    const V w_sin = weight * x_sin - (e * of(f.w_sin + j) - (of(f.m_wsin + j) << k.lift) + w * of(f.b_wsin + j));
    const u64 half = half_of(k.step_shift), slope_half = half_of(k.slope_shift);
    put(step + i, of(step + i) + rounded(c * k.step, k.step_shift, half) * x_cos +
                      rounded(n * (u64{0} - k.step), k.step_shift, half) * x_sin);
    const V slope = rounded(n * k.slope, k.slope_shift, slope_half) * w_cos +
                    rounded(c * k.slope, k.slope_shift, slope_half) * w_sin;
    put(out + i, ADD ? of(out + i) + slope : slope);
}

template <bool ADD>
static void one_row(const FusedTerms& f, const BackFactors& k, std::size_t at, std::size_t units, const u64* E,
                    const u64* t, const u64* cos, const u64* sin, u64* step, u64* out) {
    std::size_t i = 0;
    for (; i + LANES <= units; i += LANES) unit<Vec, ADD>(f, k, at, i, E, t, cos, sin, step, out);
    for (; i < units; ++i) unit<u64, ADD>(f, k, at, i, E, t, cos, sin, step, out);
}

void hadamard_back(const LiftedRows& x, const FusedTerms* terms, const BackFactors& back, u64* total, u64* step,
                   void* out, const BackShape& shape, const Trig& trig, const Opening& open) {
    // Copies, which no store to an array of words can change.
    const FusedTerms f = terms[0];
    const BackFactors factors = back;
    const BackShape s = shape;
    const std::size_t widest = s.width > s.size ? s.width : s.size;
    const std::size_t block = widest >= BLOCK_WORDS ? 1 : BLOCK_WORDS / widest;
    const Scratch scratch(block * (2 * s.width + 2 * s.units + s.size) + 2 * s.units);
    u64* const E = scratch.get();
    u64* const t = E + block * s.width;
    u64* const cos = t + block * s.width;
    u64* const sin = cos + block * s.units;
    u64* const made = sin + block * s.units;
    u64* const moved = made + block * s.size;
    std::memset(total, 0, s.width * sizeof(u64));
    std::memset(step, 0, s.terms * s.units * sizeof(u64));
    const u64 keep = x.with_public ? ~u64{0} : 0;
    for (std::size_t first = 0; first < s.rows; first += block) {
        const std::size_t rows = smaller(block, s.rows - first), wide = first * s.width, at = first * s.units;
        lift(x.opened, wide, rows * s.width, x.bits, E, t);
        const Compact phase{static_cast<const char*>(f.phase.data) + at * f.phase.itemsize, f.phase.itemsize};
        trig_words(phase, reinterpret_cast<i64*>(cos), reinterpret_cast<i64*>(sin), rows * s.units, trig);
        for (std::size_t r = 0; r < rows; ++r) {
            const u64* const e = E + r * s.width;
            const u64* const w = t + r * s.width;
            const u64* const b = x.b + wide + r * s.width;
#pragma GCC ivdep
            for (std::size_t i = 0; i < s.width; ++i) total[i] += w[i] * b[i] + (e[i] & keep);
            const u64* const c = cos + r * s.units;
            const u64* const n = sin + r * s.units;
            u64* const row = made + r * s.size;
            one_row<false>(f, factors, at + r * s.units, s.units, e, w, c, n, step, row);
            for (std::size_t term = 1; term < s.terms; ++term) {
                const FusedTerms g = terms[term];
                for (std::size_t i = 0; i < s.units; ++i) moved[i] = e[i ^ term], moved[s.units + i] = w[i ^ term];
                one_row<true>(g, factors, at + r * s.units, s.units, moved, moved + s.units, c, n, step + term * s.units,
                              row);
            }
            std::memset(row + s.units, 0, (s.size - s.units) * sizeof(u64));
        }
        walsh_hadamard(made, made, rows, s.size);
        const std::size_t span = s.size * open.itemsize;
        const char* const mask = open.mask ? static_cast<const char*>(open.mask) + first * span : nullptr;
        round_open(made, mask, static_cast<char*>(out) + first * span, open.itemsize, rows * s.size, open.drop,
                   open.bits, open.ties_up);
    }
}

}  // namespace hdcos::HDCOS_ISA
