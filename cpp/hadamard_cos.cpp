// A Hadamard layer after a cosine: rotate, pool, transform, add the bias, open; one row at a time, inside the cache.
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

// Row after row: `row` has room for the units and for `size` words, and holds the result in its first `outputs`.
static void compute_row(const Cosine& z, std::size_t index, const HadamardLayer& s, const u64* bias, const Trig& trig,
                        u64* row) {
    const std::size_t first = index * s.units;
    const Compact phase{static_cast<const char*>(z.phase.data) + first * z.phase.itemsize, z.phase.itemsize};
    rotate(phase, z.a + first, z.b + first, row, nullptr, s.units, trig);
    std::size_t filled = s.units;
    if (s.pool.window > 1) {
        sum_blocks(row, s.pool);
        filled /= s.pool.window * s.pool.window;
    }
    std::memset(row + filled, 0, (s.size - filled) * sizeof(u64));
    walsh_hadamard(row, row, 1, s.size);
    if (bias)
        for (std::size_t i = 0; i < s.outputs; ++i) row[i] += bias[i];
}

void hadamard_cos(const Cosine& z, const u64* bias, u64* out, const HadamardLayer& s, const Trig& trig) {
    const Scratch row(s.size + s.units);
    for (std::size_t i = 0; i < s.rows; ++i) {
        compute_row(z, i, s, bias, trig, row.get());
        std::memcpy(out + i * s.outputs, row.get(), s.outputs * sizeof(u64));
    }
}

void hadamard_cos_open(const Cosine& z, const u64* bias, void* out, const HadamardLayer& s, const Trig& trig,
                       const Opening& open) {
    const Scratch row(s.size + s.units);
    const std::size_t step = s.outputs * open.itemsize;
    for (std::size_t i = 0; i < s.rows; ++i) {
        compute_row(z, i, s, bias, trig, row.get());
        const char* mask = open.mask ? static_cast<const char*>(open.mask) + i * step : nullptr;
        round_open(row.get(), mask, static_cast<char*>(out) + i * step, open.itemsize, s.outputs, open.drop, open.bits,
                   open.ties_up);
    }
}

}  // namespace hdcos::HDCOS_ISA
