// A Hadamard layer after a cosine: rotate, pool, transform, add the bias, open; some rows at a time, inside the cache.
#include "vector.h"

#include "isa.h"

namespace hdcos::HDCOS_ISA {

// Sums over window x window blocks, in place: a sum lies at or before everything it is made of.
static void sum_blocks(u64* z, const Pool& pool) {
    u64* to = z;
    const std::size_t columns = pool.width / pool.window;
    for (std::size_t band = 0; band < pool.channels * pool.height / pool.window; ++band) {
        u64* from = z + band * pool.window * pool.width;
        for (std::size_t u = 1; u < pool.window; ++u)
            for (std::size_t x = 0; x < pool.width; ++x) from[x] += from[u * pool.width + x];
        for (std::size_t j = 0; j < columns; ++j) {
            u64 sum = 0;
            for (std::size_t v = 0; v < pool.window; ++v) sum += from[j * pool.window + v];
            *to++ = sum;
        }
    }
}

// D x - w_x for some rows.
static void times_weight(const u64* D, const u64* x, const u64* w_x, u64* out, std::size_t rows, std::size_t units) {
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t i = 0; i < units; ++i) out[r * units + i] = D[i] * x[r * units + i] - w_x[r * units + i];
}

// Adds entry j to entry j ^ t: pieces of 8 words move as a whole, and words within them.
static void add_moved(const u64* from, u64* to, std::size_t count, std::size_t t) {
    const std::size_t near = t & 7, far = t - near;
    std::size_t j = 0;
    for (; j + 8 <= count; j += 8)
        for (std::size_t i = 0; i < 8; ++i) to[(j ^ far) + (i ^ near)] += from[j + i];
    for (; j < count; ++j) to[j ^ t] += from[j];
}

constexpr std::size_t BLOCK_WORDS = 2048;

// This many rows are computed at a time; each has room for its units and for `size` words.
static std::size_t rows_at_once(const HadamardLayer& s) {
    const std::size_t widest = s.units > s.size ? s.units : s.size;
    return widest >= BLOCK_WORDS ? 1 : BLOCK_WORDS / widest;
}

// Room for the rows that are computed at a time, and behind them for another term and for weighted factors.
static std::size_t scratch_words(const Cosine& z, const HadamardLayer& s) {
    return rows_at_once(s) * (s.size + (1 + (s.terms > 1) + (z.weight ? 2 : 0)) * s.units);
}

// Rows [first, first + count) of one term, pooled, one behind the other; gives their length.
static std::size_t rotate_rows(const Cosine& z, std::size_t first, std::size_t count, const HadamardLayer& s,
                               const Trig& trig, u64* rows, u64* weighted) {
    const std::size_t at = first * s.units;
    const Compact phase{static_cast<const char*>(z.phase.data) + at * z.phase.itemsize, z.phase.itemsize};
    const u64 *a = z.a + at, *b = z.b + at;
    if (z.weight) {
        times_weight(z.weight, a, z.weight_a + at, weighted, count, s.units);
        times_weight(z.weight, b, z.weight_b + at, weighted + count * s.units, count, s.units);
        a = weighted, b = weighted + count * s.units;
    }
    rotate(phase, a, b, rows, nullptr, count * s.units, trig);
    std::size_t filled = s.units;
    if (s.pool.window > 1) {
        filled /= s.pool.window * s.pool.window;
        for (std::size_t r = 0; r < count; ++r) {
            sum_blocks(rows + r * s.units, s.pool);
            std::memmove(rows + r * filled, rows + r * s.units, filled * sizeof(u64));
        }
    }
    return filled;
}

// Rows [first, first + count), `size` apart: the result is in the first `outputs` words of each.
static void compute_rows(const Cosine* z, std::size_t first, std::size_t count, const HadamardLayer& s, const u64* bias,
                         const Trig& trig, u64* rows) {
    u64* const term = rows + rows_at_once(s) * (s.size + s.units);
    u64* const weighted = s.terms > 1 ? term + rows_at_once(s) * s.units : term;
    const std::size_t filled = rotate_rows(z[0], first, count, s, trig, rows, weighted);
    if (filled < s.size)
        for (std::size_t r = count; r-- > 0;) {  // from the last: each row moves away from those before it
            std::memmove(rows + r * s.size, rows + r * filled, filled * sizeof(u64));
            std::memset(rows + r * s.size + filled, 0, (s.size - filled) * sizeof(u64));
        }
    for (std::size_t t = 1; t < s.terms; ++t) {
        rotate_rows(z[t], first, count, s, trig, term, weighted);
        for (std::size_t r = 0; r < count; ++r) add_moved(term + r * filled, rows + r * s.size, filled, t);
    }
    walsh_hadamard(rows, rows, count, s.size);
    if (bias) {
        const std::size_t outputs = s.outputs, size = s.size;
        for (std::size_t r = 0; r < count; ++r)
            for (std::size_t i = 0; i < outputs; ++i) rows[r * size + i] += bias[i];
    }
}

void hadamard_cos(const Cosine* z, const u64* bias, u64* out, const HadamardLayer& s, const Trig& trig) {
    const std::size_t block = rows_at_once(s);
    const Scratch rows(scratch_words(*z, s));
    for (std::size_t first = 0; first < s.rows; first += block) {
        const std::size_t count = smaller(block, s.rows - first);
        compute_rows(z, first, count, s, bias, trig, rows.get());
        for (std::size_t r = 0; r < count; ++r)
            std::memcpy(out + (first + r) * s.outputs, rows.get() + r * s.size, s.outputs * sizeof(u64));
    }
}

void hadamard_cos_open(const Cosine* z, const u64* bias, void* out, const HadamardLayer& s, const Trig& trig,
                       const Opening& open) {
    const std::size_t block = rows_at_once(s);
    const Scratch rows(scratch_words(*z, s));
    const std::size_t step = s.outputs * open.itemsize;
    for (std::size_t first = 0; first < s.rows; first += block) {
        const std::size_t count = smaller(block, s.rows - first);
        compute_rows(z, first, count, s, bias, trig, rows.get());
        // Rows that are kept whole lie one behind the other.
        const std::size_t pieces = s.outputs == s.size ? 1 : count, length = s.outputs * count / pieces;
        for (std::size_t r = 0; r < pieces; ++r) {
            const std::size_t offset = (first + r) * step;
            const char* mask = open.mask ? static_cast<const char*>(open.mask) + offset : nullptr;
            round_open(rows.get() + r * s.size, mask, static_cast<char*>(out) + offset, open.itemsize, length, open.drop,
                       open.bits, open.ties_up);
        }
    }
}

}  // namespace hdcos::HDCOS_ISA
