// Integer cosine and sine of public phases, and what is computed with them on the spot.
//
// Phases go through in chunks: table rows are looked up one by one, arithmetic is done on whole chunks.
#include "vector.h"

#include "isa.h"

namespace hdcos::HDCOS_ISA {

constexpr std::size_t CHUNK = 256;
constexpr int SPLIT_SCALE = 30;
constexpr int HALF_PI_SCALE = 29;
constexpr u64 HALF_PI = 843314857;

struct Chunk {
    alignas(64) u64 angle[CHUNK];
    alignas(64) i64 cos[CHUNK];
    alignas(64) i64 sin[CHUNK];
};

static inline u64 row_of(const std::int32_t* table, u64 index) {
    u64 row;
    std::memcpy(&row, table + 2 * index, 8);
    return row;
}
static inline i64 cos_of(u64 row) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(row)); }
static inline i64 sin_of(u64 row) { return static_cast<i64>(row) >> 32; }

// A table of a whole turn mirrors its first eighth: of a large one only that eighth is read, which stays in the cache.
constexpr int MIRRORED_BITS = 14;

static void look_up_mirrored(Chunk& chunk, std::size_t count, const Trig& trig) {
    alignas(64) u64 row[CHUNK];
    const int quarter_bits = trig.bits - 2;
    const u64 quarter = u64{1} << quarter_bits;
    for (std::size_t i = 0; i < count; ++i) {
        const u64 within = chunk.angle[i] & (quarter - 1);
        row[i] = within > quarter / 2 ? quarter - within : within;
    }
    for (std::size_t i = 0; i < count; ++i) row[i] = row_of(trig.rows, row[i]);
    for (std::size_t i = 0; i < count; ++i) {
        const u64 turned = chunk.angle[i] >> quarter_bits, within = chunk.angle[i] & (quarter - 1);
        const i64 swapped = -static_cast<i64>((((quarter / 2 - within) >> 63) ^ turned) & 1);
        const i64 minus_cos = -static_cast<i64>((turned ^ turned >> 1) & 1), minus_sin = -static_cast<i64>(turned >> 1);
        const i64 c = cos_of(row[i]), s = sin_of(row[i]), other = (c ^ s) & swapped;
        chunk.cos[i] = ((c ^ other) ^ minus_cos) - minus_cos;
        chunk.sin[i] = ((s ^ other) ^ minus_sin) - minus_sin;
    }
}

// cos(h + l) and sin(h + l), where h is a row of the table and l the signed rest of the angle: sin l is l, and cos l is
// 1 - l * l / 2, which is exact enough for so small a rest. Every product is of 32-bit numbers, which vector units have.
static void look_up_split(Chunk& chunk, std::size_t count, const Trig& trig) {
    alignas(64) u64 row[CHUNK];
    const int rest_bits = trig.bits - HIGH_BITS, finer = MAX_BITS - trig.bits, drop = 2 * SPLIT_SCALE - trig.scale;
    const u64 keep = (u64{1} << rest_bits) - 1, middle = u64{1} << (rest_bits - 1), last = (u64{1} << HIGH_BITS) - 1;
    for (std::size_t i = 0; i < count; ++i)
        row[i] = row_of(trig.rows, (chunk.angle[i] + middle) >> rest_bits & last);
    // A constant is added before each shift, so that what is shifted is positive, and taken away behind it.
    constexpr u64 lifted = u64{1} << (MAX_BITS - HIGH_BITS);
    constexpr u64 to_radians = (lifted << HALF_PI_SCALE) + (u64{1} << (HALF_PI_SCALE - 1)) - HALF_PI * (lifted / 2);
    const u64 to_scale = (u64{1} << (2 * SPLIT_SCALE + 1)) + (u64{1} << (drop - 1)), above = u64{2} << trig.scale;
    for (std::size_t i = 0; i < count; i += LANES) {
        const Vec rest = ((load(chunk.angle + i) + middle) & keep) << finer;
        const Vec s = (((product(rest, splat(HALF_PI)) + to_radians) >> HALF_PI_SCALE) - lifted);
        const Vec c = (u64{1} << SPLIT_SCALE) - ((signed_product(s, s) + (u64{1} << SPLIT_SCALE)) >> (SPLIT_SCALE + 1));
        const Vec high = load(row + i), turned = high >> 32;
        const Vec cos = signed_product(high, c) - signed_product(turned, s);
        const Vec sin = signed_product(turned, c) + signed_product(high, s);
        store(reinterpret_cast<u64*>(chunk.cos) + i, ((cos + to_scale) >> drop) - above);
        store(reinterpret_cast<u64*>(chunk.sin) + i, ((sin + to_scale) >> drop) - above);
    }
}

// Cosine and sine of the first `count` angles; angles are below 2**bits.
static void look_up(Chunk& chunk, std::size_t count, const Trig& trig) {
    if (trig.bits > DIRECT_BITS) return look_up_split(chunk, count, trig);
    if (trig.bits >= MIRRORED_BITS) return look_up_mirrored(chunk, count, trig);
    alignas(64) u64 row[CHUNK];
    for (std::size_t i = 0; i < count; ++i) row[i] = row_of(trig.rows, chunk.angle[i]);
    for (std::size_t i = 0; i < count; ++i) {
        chunk.cos[i] = cos_of(row[i]);
        chunk.sin[i] = sin_of(row[i]);
    }
}

template <class T>
static void widen(const T* phase, u64* angle, std::size_t count, u64 keep) {
    for (std::size_t i = 0; i < count; ++i) angle[i] = phase[i] & keep;
}

// Angles [first, first + count) of the phases.
static void read(Compact phase, std::size_t first, std::size_t count, const Trig& trig, u64* angle) {
    const u64 keep = (u64{1} << trig.bits) - 1;
    switch (phase.itemsize) {
        case 1: return widen(static_cast<const std::uint8_t*>(phase.data) + first, angle, count, keep);
        case 2: return widen(static_cast<const std::uint16_t*>(phase.data) + first, angle, count, keep);
        default: return widen(static_cast<const std::uint32_t*>(phase.data) + first, angle, count, keep);
    }
}

void trig_words(Compact phase, i64* cos, i64* sin, std::size_t total, const Trig& trig) {
    Chunk chunk;
    for (std::size_t first = 0; first < total; first += CHUNK) {
        const std::size_t count = smaller(CHUNK, total - first);
        read(phase, first, count, trig, chunk.angle);
        look_up(chunk, count, trig);
        std::memcpy(cos + first, chunk.cos, count * sizeof(i64));
        std::memcpy(sin + first, chunk.sin, count * sizeof(i64));
    }
}

// Rounding by coins: the sum of a word's four 16-bit numbers, each shortened to `drop` bits, is added before the drop.
void dither(const i64* x, const u64* coins, u64* out, std::size_t count, int drop) {
    const int shorter = 16 - drop;
    const u64 keep = 0xffff;
    const i64 centre = (i64{1} << (drop - 1)) - 2 * ((i64{1} << drop) - 1);
    for (std::size_t i = 0; i < count; ++i) {
        const u64 c = coins[i];
        const u64 sum = ((c & keep) >> shorter) + ((c >> 16 & keep) >> shorter) + ((c >> 32 & keep) >> shorter) +
                        (c >> 48 >> shorter);
        out[i] = static_cast<u64>((x[i] + static_cast<i64>(sum) + centre) >> drop);
    }
}

// Both results of a place are computed before either is written: a result may lie where a or b does.
template <bool COSINE, bool SINE>
static void turn(const u64* cos, const u64* sin, const u64* a, const u64* b, u64* cosine, u64* sine,
                 std::size_t count) {
    // Cosines and sines have fewer than 32 bits: made positive, each takes two products of halves, not three.
    constexpr int above = 31;
    std::size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const Vec c = load(cos + i) + (u64{1} << above), s = load(sin + i) + (u64{1} << above);
        const Vec x = load(a + i), y = load(b + i), x_high = x >> 32, y_high = y >> 32;
        if constexpr (COSINE)
            store(cosine + i, product(c, x) - product(s, y) + ((product(c, x_high) - product(s, y_high)) << 32) -
                                  ((x - y) << above));
        if constexpr (SINE)
            store(sine + i, product(s, x) + product(c, y) + ((product(s, x_high) + product(c, y_high)) << 32) -
                                ((x + y) << above));
    }
    for (; i < count; ++i) {
        const u64 x = a[i], y = b[i];
        if constexpr (COSINE) cosine[i] = cos[i] * x - sin[i] * y;
        if constexpr (SINE) sine[i] = sin[i] * x + cos[i] * y;
    }
}

void rotate(Compact phase, const u64* a, const u64* b, u64* cosine, u64* sine, std::size_t total,
            const Trig& trig) {
    Chunk chunk;
    const u64* cos = reinterpret_cast<const u64*>(chunk.cos);
    const u64* sin = reinterpret_cast<const u64*>(chunk.sin);
    for (std::size_t first = 0; first < total; first += CHUNK) {
        const std::size_t count = smaller(CHUNK, total - first);
        read(phase, first, count, trig, chunk.angle);
        look_up(chunk, count, trig);
        if (cosine && sine) turn<true, true>(cos, sin, a + first, b + first, cosine + first, sine + first, count);
        else if (cosine) turn<true, false>(cos, sin, a + first, b + first, cosine + first, nullptr, count);
        else if (sine) turn<false, true>(cos, sin, a + first, b + first, nullptr, sine + first, count);
    }
}

template <bool ROUNDED>
static void combine(Compact phase, const u64* cos_share, const u64* sin_share, u64* out, std::size_t total,
                    const Trig& trig, const Series& series) {
    const u64 half = ROUNDED ? u64{1} << (series.shift - 1) : 0;
    const auto rounded = [&](u64 x) {
        return ROUNDED ? static_cast<u64>(static_cast<i64>(x + half) >> series.shift) : x;
    };
    Chunk chunk;
    u64 angle[CHUNK];
    const u64 keep = (u64{1} << trig.bits) - 1;
    for (std::size_t i = 0; i < total; ++i) {
        if (i % CHUNK == 0) read(phase, i, smaller(CHUNK, total - i), trig, angle);
        u64 sum = 0;
        for (std::size_t first = 0; first < series.terms; first += CHUNK) {
            const std::size_t count = smaller(CHUNK, series.terms - first);
            const i64* harmonics = series.harmonics + first;
            for (std::size_t j = 0; j < count; ++j)
                chunk.angle[j] = angle[i % CHUNK] * static_cast<u64>(harmonics[j]) & keep;
            look_up(chunk, count, trig);
            const u64* c = cos_share + i * series.terms + first;
            const u64* s = sin_share + i * series.terms + first;
            for (std::size_t j = 0; j < count; ++j) {
                const u64 p = static_cast<u64>(series.cos[first + j]), q = static_cast<u64>(series.sin[first + j]);
                const u64 cos = static_cast<u64>(chunk.cos[j]), sin = static_cast<u64>(chunk.sin[j]);
                sum += rounded(p * cos + q * sin) * c[j] + rounded(q * cos - p * sin) * s[j];
            }
        }
        out[i] = sum;
    }
}

// One harmonic, the first: phases go through in chunks as in rotate.
template <bool ROUNDED>
static void combine_one(Compact phase, const u64* cos_share, const u64* sin_share, u64* out, std::size_t total,
                        const Trig& trig, const Series& series) {
    const u64 half = ROUNDED ? u64{1} << (series.shift - 1) : 0;
    const int shift = series.shift;
    const u64 p = static_cast<u64>(series.cos[0]), q = static_cast<u64>(series.sin[0]);
    Chunk chunk;
    for (std::size_t first = 0; first < total; first += CHUNK) {
        const std::size_t count = smaller(CHUNK, total - first);
        read(phase, first, count, trig, chunk.angle);
        look_up(chunk, count, trig);
        const u64* c = cos_share + first;
        const u64* s = sin_share + first;
        for (std::size_t i = 0; i < count; ++i) {
            const u64 cos = static_cast<u64>(chunk.cos[i]), sin = static_cast<u64>(chunk.sin[i]);
            const u64 f = p * cos + q * sin, g = q * cos - p * sin;
            if constexpr (ROUNDED)
                out[first + i] = static_cast<u64>(static_cast<i64>(f + half) >> shift) * c[i] +
                                 static_cast<u64>(static_cast<i64>(g + half) >> shift) * s[i];
            else
                out[first + i] = f * c[i] + g * s[i];
        }
    }
}

void trig_combine(Compact phase, const u64* cos_share, const u64* sin_share, u64* out, std::size_t total,
                  const Trig& trig, const Series& series) {
    if (series.terms == 1 && series.harmonics[0] == 1) {
        if (series.shift) combine_one<true>(phase, cos_share, sin_share, out, total, trig, series);
        else combine_one<false>(phase, cos_share, sin_share, out, total, trig, series);
        return;
    }
    if (series.shift) combine<true>(phase, cos_share, sin_share, out, total, trig, series);
    else combine<false>(phase, cos_share, sin_share, out, total, trig, series);
}

}  // namespace hdcos::HDCOS_ISA
