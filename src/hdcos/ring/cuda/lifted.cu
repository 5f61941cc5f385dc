// Products of lifted values x = E - m + t b, element by element, and units that are pooled in windows. An operand that
// serves all rows has a step of 0 from row to row; one of x serves all units of its window.

// Where the window of a unit is in a row of windows.
INLINE i64 window_of(i64 unit, i64 height, i64 pixels, i64 window) {
    if (window == 1) return unit;
    const auto [line, x] = divide(unit, pixels);
    const auto [channel, y] = divide(line, height);
    return (channel * (height / window) + y / window) * (pixels / window) + x / window;
}

// E C - [m C] + t [b C].
KERNEL lifted_times(const u64* E, const u64* t, i64 lifted_step, const u64* factor, i64 factor_step,
                    const u64* m_factor, const u64* b_factor, u64* out, i64 count, i64 units, i64 height, i64 pixels,
                    i64 window) {
    for (i64 i = first_of_thread(); i < count; i += step_of_grid()) {
        const auto [row, unit] = divide(i, units);
        const i64 at = row * lifted_step + window_of(unit, height, pixels, window);
        out[i] = E[at] * factor[row * factor_step + unit] - m_factor[i] + t[at] * b_factor[i];
    }
}

// D x - (E M - [m M] + t [b M]) for x = t b - m, plus E for the party that adds what is public.
KERNEL lifted_product(const u64* E, const u64* t, const u64* m, const u64* b, i64 lifted_step, const u64* opened_weight,
                      const u64* mask, i64 factor_step, const u64* m_mask, const u64* b_mask, u64* out, i64 count,
                      i64 units, i64 height, i64 pixels, i64 window, i64 with_public) {
    for (i64 i = first_of_thread(); i < count; i += step_of_grid()) {
        const auto [row, unit] = divide(i, units);
        const i64 own = row * factor_step + unit;
        const i64 at = row * lifted_step + window_of(unit, height, pixels, window);
        const u64 x = t[at] * b[at] - m[at] + (with_public ? E[at] : 0);
        out[i] = opened_weight[own] * x - (E[at] * mask[own] - m_mask[i] + t[at] * b_mask[i]);
    }
}

KERNEL spread(const u64* x, u64* out, i64 count, i64 units, i64 height, i64 pixels, i64 window) {
    const i64 windows = units / (window * window);
    for (i64 i = first_of_thread(); i < count; i += step_of_grid()) {
        const auto [row, unit] = divide(i, units);
        out[i] = x[row * windows + window_of(unit, height, pixels, window)];
    }
}

KERNEL pool_sum(const u64* x, u64* out, i64 count, i64 units, i64 height, i64 pixels, i64 window) {
    const i64 windows = units / (window * window);
    for (i64 i = first_of_thread(); i < count; i += step_of_grid()) {
        const auto [row, place] = divide(i, windows);
        const i64 corner = row * units + corner_of(place, height, pixels, window);
        u64 total = 0;
        for (i64 y = 0; y < window; ++y)
            for (i64 z = 0; z < window; ++z) total += x[corner + y * pixels + z];
        out[i] = total;
    }
}
