// The kernels of one instruction set, as plain functions over raw memory. Ring words wrap modulo 2**64.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hdcos {

using u64 = std::uint64_t;
using i64 = std::int64_t;

constexpr int MAX_BITS = 32;     // of a phase
constexpr int DIRECT_BITS = 16;  // phases of more bits are split
constexpr int HIGH_BITS = 11;    // of them are looked up then

// Rows of (cos, sin) of all phases at the scale asked for; of split phases, of their highest bits at scale 30.
struct Trig {
    const std::int32_t* rows;
    int bits;
    int scale;
};

// Values of 1, 2, 4 or 8 bytes.
struct Compact {
    const void* data;
    std::size_t itemsize;
};

static inline u64 value_of(Compact x, std::size_t i) {
    switch (x.itemsize) {
        case 1: return static_cast<const std::uint8_t*>(x.data)[i];
        case 2: return static_cast<const std::uint16_t*>(x.data)[i];
        case 4: return static_cast<const std::uint32_t*>(x.data)[i];
        default: return static_cast<const u64*>(x.data)[i];
    }
}

struct Conv {
    std::size_t images, channels, height, width;
    std::size_t outputs, window_height, window_width;
    std::size_t stride, padding;
    std::size_t out_height, out_width;
    std::size_t groups, dilation;
};

// Coefficients times cosines are rounded to `shift` bits fewer before they multiply the shares.
struct Series {
    const i64* cos;
    const i64* sin;
    const i64* harmonics;
    std::size_t terms;
    int shift;
};

// cos d * a - sin d * b at public phases d; with a weight w, of D a - w_a and D b - w_b instead, D one row for all.
struct Cosine {
    Compact phase;
    const u64* a;
    const u64* b;
    const u64* weight;
    const u64* weight_a;
    const u64* weight_b;
};

// Units as channels of images, summed over window x window blocks; a window of 1 changes nothing.
struct Pool {
    std::size_t channels, height, width, window;
};

// The sum of `terms` cosines, entry j of the t-th moved to j ^ t.
struct HadamardLayer {
    std::size_t rows, units, size, outputs;
    Pool pool;
    std::size_t terms;
};

// Products of `rows` x `units` lifted values; a stride of 0 repeats one row. A pool makes a lifted row one per window.
struct LiftedShape {
    std::size_t rows, units, lifted_stride, factor_stride;
    Pool pool;
};

// What round_open does to words; `mask` may be nullptr.
struct Opening {
    const void* mask;
    std::size_t itemsize;
    int drop, bits;
    bool ties_up;
};

// Rows of lifted values as they were opened: D in `bits` bits, with this party's shares of m, where needed, and b.
struct LiftedRows {
    Compact opened;
    const u64* m;
    const u64* b;
    int bits;
    bool with_public;
};

// Rows of masked values: what was opened, and this party's share of the mask.
struct MaskedRows {
    const u64* opened;
    const u64* mask;
};

// A fused phase with everything that was dealt for its product with a lifted value and a weight; of the t-th of several
// terms, with the value's entry j ^ t in place of j.
struct FusedTerms {
    Compact phase;
    const u64 *cos, *sin, *w_cos, *w_sin;
    const u64 *m_cos, *b_cos, *m_sin, *b_sin, *m_wcos, *b_wcos, *m_wsin, *b_wsin;
    const u64* weight;
};

// Public factors on tables: rate times cosine for the weight's step, 2 pi times sine for the gradient.
struct BackFactors {
    u64 step;
    int step_shift;
    u64 slope;
    int slope_shift;
    int lift;  // m w cos r and m w sin r are in units of 2**lift
};

struct BackShape {
    std::size_t rows, width, units, size, terms;
};

// Bits [shift, shift + width) of an opened value with their truth table, whose bit x says whether x is below the mask's
// bits; where that goes, and where equality does, among the bits that are opened next. Nowhere is -1.
struct SignBlock {
    Compact table;
    int shift, width, below_at, equal_at;
};

struct Kernels {
    const char* name;
    void (*matmul)(const u64* a, const u64* b, u64* c, std::size_t n, std::size_t d, std::size_t k);
    void (*conv2d)(const u64* x, const u64* weight, u64* out, const Conv& shape);
    void (*walsh_hadamard)(const u64* x, u64* out, std::size_t rows, std::size_t n);
    void (*round_open)(const u64* x, const void* mask, void* out, std::size_t itemsize, std::size_t count,
                       int drop, int bits, bool ties_up);
    void (*pack)(Compact values, std::uint8_t* out, std::size_t count, int bits);
    void (*unpack)(const std::uint8_t* buffer, std::size_t size, void* out, std::size_t itemsize,
                   std::size_t count, int bits);
    void (*unpack_sum)(const std::uint8_t* buffer, std::size_t size, const void* values, void* out,
                       std::size_t itemsize, std::size_t count, int bits);
    void (*trig_words)(Compact phase, i64* cos, i64* sin, std::size_t count, const Trig& trig);
    void (*dither)(const i64* x, const u64* coins, u64* out, std::size_t count, int drop);
    void (*trig_combine)(Compact phase, const u64* cos_share, const u64* sin_share, u64* out,
                         std::size_t count, const Trig& trig, const Series& series);
    void (*rotate)(Compact phase, const u64* a, const u64* b, u64* cosine, u64* sine, std::size_t count,
                   const Trig& trig);
    void (*hadamard_cos)(const Cosine* z, const u64* bias, u64* out, const HadamardLayer& shape, const Trig& trig);
    void (*hadamard_cos_open)(const Cosine* z, const u64* bias, void* out, const HadamardLayer& shape,
                              const Trig& trig, const Opening& opening);
    void (*hadamard_back)(const LiftedRows& x, const FusedTerms* terms, const BackFactors& factors, u64* total,
                          u64* step, void* out, const BackShape& shape, const Trig& trig, const Opening& opening);
    void (*spread)(const u64* x, u64* out, std::size_t rows, const Pool& pool);
    void (*pool_sum)(const u64* x, u64* out, std::size_t rows, const Pool& pool);
    void (*lifted_sums)(const LiftedRows& x, const MaskedRows& w, const u64* m_mask, const u64* b_mask, u64* total,
                        u64* sums, std::size_t rows, std::size_t width, std::size_t units);
    void (*lifted_times)(const u64* E, const u64* t, const u64* factor, const u64* m_factor, const u64* b_factor,
                         u64* out, const LiftedShape& shape);
    void (*lifted_product)(const u64* E, const u64* t, const u64* m, const u64* b, const u64* opened,
                           const u64* mask, const u64* m_mask, const u64* b_mask, u64* out, bool with_public,
                           const LiftedShape& shape);
    void (*sign_lookup)(Compact D, const SignBlock* blocks, std::size_t number, const std::uint8_t* masks,
                        std::uint8_t* first, std::uint8_t* asked, std::size_t count, int bits, bool with_public);
    void (*sign_combine)(const std::uint8_t* opened, const std::uint8_t* masks, Compact products,
                         const std::uint8_t* first, const u64* rules, std::uint8_t* out, std::size_t count,
                         int mask_bits, bool with_public);
};

// Each instruction set compiles the same sources in its own namespace and fills one of these.
namespace baseline { extern const Kernels kernels; }
namespace v3 { extern const Kernels kernels; }
namespace v4 { extern const Kernels kernels; }

}  // namespace hdcos
