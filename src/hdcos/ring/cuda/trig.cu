// Cosines and sines from tables of integers, and shares turned by them.
KERNEL trig_words(const void* phase, i64* cos, i64* sin, const int* table, i64 count, i64 bits, i64 scale, i64 width) {
    for (i64 i = first_of_thread(); i < count; i += step_of_grid()) {
        const Rotation turn = look_up(table, load(phase, width, i), bits, scale);
        cos[i] = turn.cos;
        sin[i] = turn.sin;
    }
}

KERNEL rotate(const void* phase, const u64* a, const u64* b, u64* cosine, u64* sine, const int* table, i64 count,
              i64 bits, i64 scale, i64 width) {
    for (i64 i = first_of_thread(); i < count; i += step_of_grid()) {
        const Rotation turn = look_up(table, load(phase, width, i), bits, scale);
        const u64 c = turn.cos, s = turn.sin, x = a[i], y = b[i];
        if (cosine) cosine[i] = c * x - s * y;
        if (sine) sine[i] = s * x + c * y;
    }
}

// What one harmonic k of several adds: (a cos kd + b sin kd) C + (b cos kd - a sin kd) S.
KERNEL trig_combine(const void* phase, const u64* cos_share, const u64* sin_share, u64* total, const int* table,
                    i64 count, i64 bits, i64 scale, i64 width, u64 a, u64 b, u64 k, i64 number, i64 harmonics,
                    i64 shift) {
    for (i64 i = first_of_thread(); i < count; i += step_of_grid()) {
        const Rotation turn = look_up(table, load(phase, width, i) * k, bits, scale);
        const u64 c = turn.cos, s = turn.sin;
        const u64 u = rounded(a * c + b * s, shift), v = rounded(b * c - a * s, shift);
        const u64 added = u * cos_share[i * harmonics + number] + v * sin_share[i * harmonics + number];
        total[i] = number ? total[i] + added : added;
    }
}

// x plus the centred sum of four uniform numbers of `drop` bits, over 2**drop, rounded.
KERNEL dither(const i64* x, const u64* coins, u64* out, i64 count, i64 drop) {
    for (i64 i = first_of_thread(); i < count; i += step_of_grid()) {
        i64 total = -2 * ((1LL << drop) - 1);
        for (int number = 0; number < 4; ++number) total += ((coins[i] >> (16 * number)) & 0xFFFF) >> (16 - drop);
        out[i] = static_cast<u64>((x[i] + total + (1LL << (drop - 1))) >> drop);
    }
}
