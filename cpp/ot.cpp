#include "ot.h"

#include "aes.h"

#include <cstring>
#include <stdexcept>

namespace hdcos::ot {

#if defined(__x86_64__)

#define HDCOS_AES_CODE __attribute__((target("aes,sse4.1")))

bool available() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("aes") && __builtin_cpu_supports("sse4.1");
}

template <int CONSTANT>
HDCOS_AES __m128i next_key(__m128i key) {
    const __m128i word = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(key, CONSTANT), 0xff);
    for (int i = 0; i < 3; ++i) key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
    return _mm_xor_si128(key, word);
}

HDCOS_AES_CODE void key_schedule(const u8* keys, u8* schedules, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        __m128i key = _mm_loadu_si128(reinterpret_cast<const __m128i*>(keys) + i);
        __m128i* out = reinterpret_cast<__m128i*>(schedules + i * SCHEDULE_BYTES);
        _mm_storeu_si128(out++, key);
        _mm_storeu_si128(out++, key = next_key<0x01>(key));
        _mm_storeu_si128(out++, key = next_key<0x02>(key));
        _mm_storeu_si128(out++, key = next_key<0x04>(key));
        _mm_storeu_si128(out++, key = next_key<0x08>(key));
        _mm_storeu_si128(out++, key = next_key<0x10>(key));
        _mm_storeu_si128(out++, key = next_key<0x20>(key));
        _mm_storeu_si128(out++, key = next_key<0x40>(key));
        _mm_storeu_si128(out++, key = next_key<0x80>(key));
        _mm_storeu_si128(out++, key = next_key<0x1b>(key));
        _mm_storeu_si128(out++, key = next_key<0x36>(key));
    }
}

// Two counters under each of four keys at a time.
HDCOS_AES void streams(const __m128i* keys, __m128i counter0, __m128i counter1, __m128i (&s)[8]) {
    constexpr int STEP = SCHEDULE_BYTES / 16;
    for (int x = 0; x < 4; ++x) {
        const __m128i key = _mm_loadu_si128(keys + x * STEP);
        s[2 * x] = _mm_xor_si128(counter0, key);
        s[2 * x + 1] = _mm_xor_si128(counter1, key);
    }
    for (int round = 1; round < ROUNDS; ++round)
        for (int x = 0; x < 4; ++x) {
            const __m128i key = _mm_loadu_si128(keys + x * STEP + round);
            s[2 * x] = _mm_aesenc_si128(s[2 * x], key);
            s[2 * x + 1] = _mm_aesenc_si128(s[2 * x + 1], key);
        }
    for (int x = 0; x < 4; ++x) {
        const __m128i key = _mm_loadu_si128(keys + x * STEP + ROUNDS);
        s[2 * x] = _mm_aesenclast_si128(s[2 * x], key);
        s[2 * x + 1] = _mm_aesenclast_si128(s[2 * x + 1], key);
    }
}

HDCOS_AES_CODE void combine(const u8* schedules, std::size_t blocks, u64 first, std::size_t counters, u8* u, u8* v) {
    const std::size_t bytes = 16 * counters;
    for (std::size_t block = 0; block < blocks; ++block) {
        const __m128i* keys = reinterpret_cast<const __m128i*>(schedules + block * LEAVES * SCHEDULE_BYTES);
        for (std::size_t c = 0; c < counters; c += 2) {
            const bool pair = c + 1 < counters;
            const __m128i counter0 = _mm_set_epi64x(0, static_cast<long long>(first + c));
            const __m128i counter1 = _mm_set_epi64x(0, static_cast<long long>(first + c + 1));
            __m128i sum[2] = {}, low[2][2] = {}, high[2][2] = {};
            for (int group = 0; group < 4; ++group) {
                __m128i s[8];
                streams(keys + group * 4 * (SCHEDULE_BYTES / 16), counter0, counter1, s);
                for (int j = 0; j < 2; ++j) {
                    const __m128i odd = _mm_xor_si128(s[2 + j], s[6 + j]), upper = _mm_xor_si128(s[4 + j], s[6 + j]);
                    const __m128i all = _mm_xor_si128(_mm_xor_si128(s[j], s[4 + j]), odd);
                    low[0][j] = _mm_xor_si128(low[0][j], odd);
                    low[1][j] = _mm_xor_si128(low[1][j], upper);
                    if (group & 1) high[0][j] = _mm_xor_si128(high[0][j], all);
                    if (group & 2) high[1][j] = _mm_xor_si128(high[1][j], all);
                    sum[j] = _mm_xor_si128(sum[j], all);
                }
            }
            for (int j = 0; j < 1 + pair; ++j) {
                const std::size_t at = 16 * (c + j);
                if (u) _mm_storeu_si128(reinterpret_cast<__m128i*>(u + block * bytes + at), sum[j]);
                u8* rows = v + block * FIELD_BITS * bytes + at;
                _mm_storeu_si128(reinterpret_cast<__m128i*>(rows), low[0][j]);
                _mm_storeu_si128(reinterpret_cast<__m128i*>(rows + bytes), low[1][j]);
                _mm_storeu_si128(reinterpret_cast<__m128i*>(rows + 2 * bytes), high[0][j]);
                _mm_storeu_si128(reinterpret_cast<__m128i*>(rows + 3 * bytes), high[1][j]);
            }
        }
    }
}

// Sixteen rows of sixteen bytes, turned: byte i of x[j] becomes byte j of x[i].
static inline void turn_bytes(__m128i (&x)[16]) {
    __m128i y[16];
    // Each pass interleaves bytes of rows eight apart; four passes make the whole transposition.
    for (int pass = 0; pass < 4; ++pass) {
        for (int i = 0; i < 8; ++i) {
            y[2 * i] = _mm_unpacklo_epi8(x[i], x[i + 8]);
            y[2 * i + 1] = _mm_unpackhi_epi8(x[i], x[i + 8]);
        }
        for (int i = 0; i < 16; ++i) x[i] = y[i];
    }
}

// Byte i of x has eight bits of row i: they become the bits of column i of eight rows of `out`, 16 bytes apart.
static inline void put_bits(__m128i x, u8* out) {
    for (int bit = 7; bit >= 0; --bit) {
        const std::uint16_t mask = static_cast<std::uint16_t>(_mm_movemask_epi8(x));
        std::memcpy(out + bit * 16, &mask, 2);
        x = _mm_slli_epi64(x, 1);
    }
}

void transpose(const u8* rows, std::size_t bytes, u8* out) {
    std::size_t column = 0;
    for (; column + 16 <= bytes; column += 16)
        for (std::size_t group = 0; group < 8; ++group) {
            __m128i x[16];
            for (std::size_t i = 0; i < 16; ++i)
                x[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + (16 * group + i) * bytes + column));
            turn_bytes(x);
            for (std::size_t i = 0; i < 16; ++i) put_bits(x[i], out + (column + i) * 8 * 16 + 2 * group);
        }
    for (; column < bytes; ++column)
        for (std::size_t group = 0; group < 8; ++group) {
            alignas(16) u8 gathered[16];
            for (std::size_t i = 0; i < 16; ++i) gathered[i] = rows[(16 * group + i) * bytes + column];
            put_bits(_mm_load_si128(reinterpret_cast<const __m128i*>(gathered)), out + column * 8 * 16 + 2 * group);
        }
}

HDCOS_AES __m128i tweak(u64 index, u64 block) {
    return _mm_set_epi64x(static_cast<long long>(block), static_cast<long long>(index));
}

static inline u64 word_of(__m128i block, std::size_t i) {
    u64 words[2];
    std::memcpy(words, &block, 16);
    return words[i];
}

// Where the product of an element goes and where its vector comes from, advanced without dividing.
struct Place {
    std::size_t row, rows, sum, within, fold;

    Place(const Piece& piece)
        : row(piece.first % piece.rows),
          rows(piece.rows),
          sum(piece.first / piece.fold),
          within(piece.first % piece.fold),
          fold(piece.fold) {}
    void next() {
        if (++row == rows) row = 0;
        if (++within == fold) within = 0, ++sum;
    }
};

HDCOS_AES_CODE void send(const u8* q, const u8* delta_bytes, const u8* schedule, const u64* vectors, const u64* signs,
                         const Piece& piece, u64* messages, u64* sums) {
    const Schedule P = load_schedule(schedule);
    const __m128i delta = _mm_loadu_si128(reinterpret_cast<const __m128i*>(delta_bytes));
    const __m128i* rows = reinterpret_cast<const __m128i*>(q);
    const std::size_t length = piece.length, blocks = (length + 1) / 2;
    const u64 top = piece.negative ? ~u64{0} : 0;
    const int bit = piece.bit, shift = piece.shift(), down = piece.down();
    const std::int64_t half = down ? std::int64_t{1} << (down - 1) : 0;
    Place place(piece);
    const auto put = [&](std::size_t e, std::size_t block, __m128i pad0, __m128i pad1) __attribute__((always_inline)) {
        const std::int64_t ties_down = down ? place.row & 1 : 0;
        const u64 sign = top ^ (signs ? u64{0} - (signs[place.row] >> bit & 1) : 0);
        for (std::size_t i = 0; i < 2 && 2 * block + i < length; ++i) {
            const std::size_t k = 2 * block + i;
            const std::int64_t whole = static_cast<std::int64_t>(vectors[place.row * length + k]);
            const u64 value = static_cast<u64>((whole + half - ties_down) >> down);
            const u64 x = (value ^ sign) - sign, zero = word_of(pad0, i);
            messages[e * length + k] = zero + x - word_of(pad1, i);
            sums[place.sum * length + k] -= zero << shift;
        }
    };
    for (std::size_t e = 0; e < piece.count;) {
        const std::size_t group = blocks == 1 && e + 4 <= piece.count ? 4 : 1;
        __m128i base[8] = {};
        for (std::size_t i = 0; i < group; ++i) {
            base[2 * i] = _mm_loadu_si128(rows + e + i);
            base[2 * i + 1] = _mm_xor_si128(base[2 * i], delta);
        }
        if (group == 4) {
            encrypt(base, P.key);
            __m128i pad[8];
            for (int i = 0; i < 8; ++i) pad[i] = _mm_xor_si128(base[i], tweak(piece.index + e + i / 2, 0));
            encrypt(pad, P.key);
            for (int i = 0; i < 8; ++i) pad[i] = _mm_xor_si128(pad[i], base[i]);
            for (int i = 0; i < 4; ++i, ++e, place.next()) put(e, 0, pad[2 * i], pad[2 * i + 1]);
            continue;
        }
        __m128i two[2] = {base[0], base[1]};
        encrypt(two, P.key);
        for (std::size_t block = 0; block < blocks; block += 4) {
            __m128i pad[8];
            for (int i = 0; i < 8; ++i) pad[i] = _mm_xor_si128(two[i & 1], tweak(piece.index + e, block + i / 2));
            encrypt(pad, P.key);
            for (std::size_t i = 0; i < 4 && block + i < blocks; ++i)
                put(e, block + i, _mm_xor_si128(pad[2 * i], two[0]), _mm_xor_si128(pad[2 * i + 1], two[1]));
        }
        ++e, place.next();
    }
}

HDCOS_AES_CODE void receive(const u8* t, const u8* schedule, const u64* choices, const u64* messages,
                            const Piece& piece, u64* sums) {
    const Schedule P = load_schedule(schedule);
    const __m128i* rows = reinterpret_cast<const __m128i*>(t);
    const std::size_t length = piece.length, blocks = (length + 1) / 2;
    const int bit = piece.bit, shift = piece.shift();
    Place place(piece);
    const auto put = [&](std::size_t e, std::size_t block, __m128i pad) __attribute__((always_inline)) {
        const u64 chosen = u64{0} - (choices[e] >> bit & 1);
        for (std::size_t i = 0; i < 2 && 2 * block + i < length; ++i) {
            const std::size_t k = 2 * block + i;
            sums[place.sum * length + k] += (word_of(pad, i) + (messages[e * length + k] & chosen)) << shift;
        }
    };
    for (std::size_t e = 0; e < piece.count;) {
        if (blocks == 1 && e + 8 <= piece.count) {
            __m128i base[8], pad[8];
            for (int i = 0; i < 8; ++i) base[i] = _mm_loadu_si128(rows + e + i);
            encrypt(base, P.key);
            for (int i = 0; i < 8; ++i) pad[i] = _mm_xor_si128(base[i], tweak(piece.index + e + i, 0));
            encrypt(pad, P.key);
            for (int i = 0; i < 8; ++i, ++e, place.next()) put(e, 0, _mm_xor_si128(pad[i], base[i]));
            continue;
        }
        __m128i one[1] = {_mm_loadu_si128(rows + e)};
        encrypt(one, P.key);
        for (std::size_t block = 0; block < blocks; block += 8) {
            __m128i pad[8];
            for (int i = 0; i < 8; ++i) pad[i] = _mm_xor_si128(one[0], tweak(piece.index + e, block + i));
            encrypt(pad, P.key);
            for (std::size_t i = 0; i < 8 && block + i < blocks; ++i)
                put(e, block + i, _mm_xor_si128(pad[i], one[0]));
        }
        ++e, place.next();
    }
}

#else

bool available() { return false; }
[[noreturn]] static void missing() { throw std::runtime_error("no AES instructions were compiled for this processor"); }
void key_schedule(const u8*, u8*, std::size_t) { missing(); }
void combine(const u8*, std::size_t, u64, std::size_t, u8*, u8*) { missing(); }
void transpose(const u8*, std::size_t, u8*) { missing(); }
void send(const u8*, const u8*, const u8*, const u64*, const u64*, const Piece&, u64*, u64*) { missing(); }
void receive(const u8*, const u8*, const u64*, const u64*, const Piece&, u64*) { missing(); }

#endif

}  // namespace hdcos::ot
