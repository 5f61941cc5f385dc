// Hadamard layers behind a cosine, forward and back. A block has SEGMENT words in shared memory: one row, or several.
// Of several terms each is one launch, and `before` has what those before it added up to; the last one transforms.
// Rows of more than SEGMENT words are written as they are and transformed by `walsh_hadamard`.

INLINE void finish(u64* values, i64 start, i64 rows, i64 size, i64 transform, i64 outputs, const u64* bias,
                   const void* mask, void* out, i64 width, i64 drop, i64 bits, i64 ties_up) {
    if (transform) transform_segment(values, size);
    for (i64 i = threadIdx.x; i < SEGMENT; i += blockDim.x) {
        const auto [row, place] = divide_by_power(start + i, size);
        if (row >= rows || place >= outputs) continue;
        const i64 at = row * outputs + place;
        const u64 word = values[i] + (bias ? bias[place] : 0);
        if (bits) store(out, width, at, opened(word, mask ? load(mask, width, at) : 0, drop, bits, ties_up));
        else static_cast<u64*>(out)[at] = word;
    }
}

// cos d a - sin d b of one unit; with a weight D, of D a - w_a and D b - w_b.
INLINE u64 turned(const void* phase, i64 phase_width, const u64* a, const u64* b, const u64* weight, const u64* w_a,
                  const u64* w_b, const int* table, i64 phase_bits, i64 scale, i64 at, i64 unit) {
    const Rotation turn = look_up(table, load(phase, phase_width, at), phase_bits, scale);
    u64 x = a[at], y = b[at];
    if (weight) {
        x = weight[unit] * x - w_a[at];
        y = weight[unit] * y - w_b[at];
    }
    return static_cast<u64>(turn.cos) * x - static_cast<u64>(turn.sin) * y;
}

KERNEL hadamard_cos(const void* phase, i64 phase_width, const u64* a, const u64* b, const u64* weight, const u64* w_a,
                    const u64* w_b, const int* table, i64 phase_bits, i64 scale, i64 rows, i64 units, i64 height,
                    i64 pixels, i64 window, i64 size, i64 term, const u64* before, i64 transform, i64 outputs,
                    const u64* bias, const void* mask, void* out, i64 width, i64 drop, i64 bits, i64 ties_up) {
    __shared__ u64 values[SEGMENT];
    const i64 start = static_cast<i64>(blockIdx.x) * SEGMENT, windows = units / (window * window);
    for (i64 i = threadIdx.x; i < SEGMENT; i += blockDim.x) {
        const auto [row, place] = divide_by_power(start + i, size);
        const i64 from = place ^ term;
        u64 total = before && row < rows ? before[start + i] : 0;
        if (row < rows && from < windows) {
            const i64 corner = window == 1 ? from : corner_of(from, height, pixels, window);
            for (i64 y = 0; y < window; ++y) {
                for (i64 x = 0; x < window; ++x) {
                    const i64 unit = corner + y * pixels + x;
                    total += turned(phase, phase_width, a, b, weight, w_a, w_b, table, phase_bits, scale,
                                    row * units + unit, unit);
                }
            }
        }
        values[i] = total;
    }
    finish(values, start, rows, size, transform, outputs, bias, mask, out, width, drop, bits, ties_up);
}

// One term of the gradient x = E - m + t b, moved by the term: adds the weight's step up over rows, and goes on to the
// layer before. `reach` is the length of a row of what was opened.
KERNEL hadamard_back(const void* lifted, i64 lifted_width, i64 lifted_bits, i64 reach, const void* phase,
                     i64 phase_width, const int* table, i64 phase_bits, i64 scale, const u64* cos_r, const u64* sin_r,
                     const u64* w_cos, const u64* w_sin, const u64* m_cos, const u64* b_cos, const u64* m_sin,
                     const u64* b_sin, const u64* m_wcos, const u64* b_wcos, const u64* m_wsin, const u64* b_wsin,
                     const u64* weight, u64* moved, u64 step, i64 step_shift, u64 slope, i64 slope_shift, i64 rows,
                     i64 units, i64 size, i64 term, const u64* before, i64 transform, const void* mask, void* out,
                     i64 width, i64 drop, i64 bits, i64 ties_up) {
    __shared__ u64 values[SEGMENT];
    const i64 start = static_cast<i64>(blockIdx.x) * SEGMENT;
    for (i64 i = threadIdx.x; i < SEGMENT; i += blockDim.x) {
        const auto [row, unit] = divide_by_power(start + i, size);
        u64 total = before && row < rows ? before[start + i] : 0;
        if (row < rows && unit < units) {
            const i64 at = row * units + unit;
            const u64 D = load(lifted, lifted_width, row * reach + (unit ^ term));
            const u64 E = D - (1ULL << (lifted_bits - 2)), t = (1 - (D >> (lifted_bits - 1))) << lifted_bits;
            const u64 x_cos = E * cos_r[at] - m_cos[at] + t * b_cos[at];
            const u64 x_sin = E * sin_r[at] - m_sin[at] + t * b_sin[at];
            const u64 mw_cos = E * w_cos[at] - (m_wcos[at] << lifted_bits) + t * b_wcos[at];
            const u64 mw_sin = E * w_sin[at] - (m_wsin[at] << lifted_bits) + t * b_wsin[at];
            const Rotation turn = look_up(table, load(phase, phase_width, at), phase_bits, scale);
            const u64 c = turn.cos, s = turn.sin;
            atomicAdd(moved + unit, rounded(step * c, step_shift) * x_cos + rounded(0 - step * s, step_shift) * x_sin);
            total += rounded(slope * s, slope_shift) * (weight[unit] * x_cos - mw_cos);
            total += rounded(slope * c, slope_shift) * (weight[unit] * x_sin - mw_sin);
        }
        values[i] = total;
    }
    finish(values, start, rows, size, transform, size, nullptr, mask, out, width, drop, bits, ties_up);
}

// The sums over rows of t b, plus E for the party that adds what is public; each block takes some rows.
KERNEL lifted_total(const void* lifted, i64 width, i64 bits, const u64* b, u64* total, i64 rows, i64 reach, i64 each,
                    i64 with_public) {
    const i64 column = first_of_thread(), first = static_cast<i64>(blockIdx.y) * each;
    if (column >= reach) return;
    u64 sum = 0;
    for (i64 row = first; row < rows && row < first + each; ++row) {
        const u64 D = load(lifted, width, row * reach + column);
        const u64 t = (1 - (D >> (bits - 1))) << bits;
        sum += t * b[row * reach + column] + (with_public ? D - (1ULL << (bits - 2)) : 0);
    }
    atomicAdd(total + column, sum);
}
