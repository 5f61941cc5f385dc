// Products of lifted values x = E - m + t b, and the spreading and summing of pooled units around them.
//
// A row of lifted values is one per unit, or one per window of the pool: such a row is spread to the units first.
#include "vector.h"

#include "isa.h"
#include "lift.h"

namespace hdcos::HDCOS_ISA {

static void spread_row(const u64* from, u64* to, const Pool& pool) {
    const std::size_t columns = pool.width / pool.window;
    for (std::size_t band = 0; band < pool.channels * pool.height / pool.window; ++band) {
        u64* const line = to + band * pool.window * pool.width;
        for (std::size_t j = 0; j < columns; ++j)
            for (std::size_t v = 0; v < pool.window; ++v) line[j * pool.window + v] = from[band * columns + j];
        for (std::size_t u = 1; u < pool.window; ++u)
            std::memcpy(line + u * pool.width, line, pool.width * sizeof(u64));
    }
}

static void sum_row(const u64* from, u64* to, const Pool& pool) {
    const std::size_t columns = pool.width / pool.window;
    for (std::size_t band = 0; band < pool.channels * pool.height / pool.window; ++band) {
        const u64* const line = from + band * pool.window * pool.width;
        for (std::size_t j = 0; j < columns; ++j) {
            u64 sum = 0;
            for (std::size_t u = 0; u < pool.window; ++u)
                for (std::size_t v = 0; v < pool.window; ++v) sum += line[u * pool.width + j * pool.window + v];
            to[band * columns + j] = sum;
        }
    }
}

void spread(const u64* x, u64* out, std::size_t rows, const Pool& pool) {
    const std::size_t units = pool.channels * pool.height * pool.width;
    const std::size_t windows = units / (pool.window * pool.window);
    for (std::size_t row = 0; row < rows; ++row) spread_row(x + row * windows, out + row * units, pool);
}

void pool_sum(const u64* x, u64* out, std::size_t rows, const Pool& pool) {
    const std::size_t units = pool.channels * pool.height * pool.width;
    const std::size_t windows = units / (pool.window * pool.window);
    for (std::size_t row = 0; row < rows; ++row) sum_row(x + row * units, out + row * windows, pool);
}

// One row of a lifted operand, spread into `room` if it is pooled.
static const u64* row_of(const u64* x, std::size_t row, std::size_t stride, const Pool& pool, u64* room) {
    const u64* const from = x + row * stride;
    if (pool.window == 1) return from;
    spread_row(from, room, pool);
    return room;
}

void lifted_times(const u64* E, const u64* t, const u64* factor, const u64* m_factor, const u64* b_factor, u64* out,
                  const LiftedShape& s) {
    const std::size_t units = s.units;
    const Scratch room(s.pool.window == 1 ? 0 : 2 * units);
    for (std::size_t row = 0; row < s.rows; ++row) {
        const u64* const e = row_of(E, row, s.lifted_stride, s.pool, room.get());
        const u64* const w = row_of(t, row, s.lifted_stride, s.pool, room.get() + units);
        const u64* const f = factor + row * s.factor_stride;
        const u64* const m = m_factor + row * units;
        const u64* const b = b_factor + row * units;
        u64* const to = out + row * units;
#pragma GCC ivdep
        for (std::size_t i = 0; i < units; ++i) to[i] = e[i] * f[i] - m[i] + w[i] * b[i];
    }
}

void lifted_product(const u64* E, const u64* t, const u64* m, const u64* b, const u64* opened, const u64* mask,
                    const u64* m_mask, const u64* b_mask, u64* out, bool with_public, const LiftedShape& s) {
    const std::size_t units = s.units;
    const Scratch room(s.pool.window == 1 ? 0 : 4 * units);
    const u64 keep = with_public ? ~u64{0} : 0;
    for (std::size_t row = 0; row < s.rows; ++row) {
        const u64* const e = row_of(E, row, s.lifted_stride, s.pool, room.get());
        const u64* const w = row_of(t, row, s.lifted_stride, s.pool, room.get() + units);
        const u64* const me = row_of(m, row, s.lifted_stride, s.pool, room.get() + 2 * units);
        const u64* const be = row_of(b, row, s.lifted_stride, s.pool, room.get() + 3 * units);
        const u64* const D = opened + row * s.factor_stride;
        const u64* const M = mask + row * s.factor_stride;
        const u64* const mm = m_mask + row * units;
        const u64* const bm = b_mask + row * units;
        u64* const to = out + row * units;
#pragma GCC ivdep
        for (std::size_t i = 0; i < units; ++i)
            to[i] = D[i] * (w[i] * be[i] - me[i] + (e[i] & keep)) - (e[i] * M[i] - mm[i] + w[i] * bm[i]);
    }
}

void lifted_sums(const LiftedRows& x, const MaskedRows& w, const u64* m_mask, const u64* b_mask, u64* total, u64* sums,
                 std::size_t rows, std::size_t width, std::size_t units) {
    const Scratch lifted(2 * width);
    u64* const e = lifted.get();
    u64* const t = e + width;
    const u64 keep = x.with_public ? ~u64{0} : 0;
    std::memset(total, 0, width * sizeof(u64));
    std::memset(sums, 0, units * sizeof(u64));
    for (std::size_t row = 0; row < rows; ++row) {
        const u64* const m = x.m + row * width;
        const u64* const b = x.b + row * width;
        lift(x.opened, row * width, width, x.bits, e, t);
#pragma GCC ivdep
        for (std::size_t i = 0; i < width; ++i) total[i] += t[i] * b[i] - m[i] + (e[i] & keep);
        const u64* const D = w.opened + row * units;
        const u64* const M = w.mask + row * units;
        const u64* const mm = m_mask + row * units;
        const u64* const bm = b_mask + row * units;
#pragma GCC ivdep
        for (std::size_t i = 0; i < units; ++i)
            sums[i] += D[i] * (t[i] * b[i] - m[i] + (e[i] & keep)) - (e[i] * M[i] - mm[i] + t[i] * bm[i]);
    }
}

}  // namespace hdcos::HDCOS_ISA
