#include "oprf.h"

#include "aes.h"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace hdcos::oprf {

// ---- BLAKE2b (RFC 7693) of one block

static const u64 IV[8] = {0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
                          0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u};
static const u8 SIGMA[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3}};

static inline u64 rotated(u64 x, int by) { return x >> by | x << (64 - by); }

static inline void mix(u64& a, u64& b, u64& c, u64& d, u64 x, u64 y) {
    a += b + x, d = rotated(d ^ a, 32);
    c += d, b = rotated(b ^ c, 24);
    a += b + y, d = rotated(d ^ a, 16);
    c += d, b = rotated(b ^ c, 63);
}

// The hash of `length` bytes, at most one block, that lie in `block` with zeros behind them.
static void blake2b(const u64 (&block)[16], u64 length, std::size_t size, u64 number, const u8* person, u8* out) {
    u64 named[2], h[8], v[16];
    std::memcpy(named, person, PERSON_BYTES);
    for (int i = 0; i < 8; ++i) h[i] = IV[i];
    h[0] ^= 0x01010000u ^ size;
    h[4] ^= number;
    h[6] ^= named[0], h[7] ^= named[1];
    for (int i = 0; i < 8; ++i) v[i] = h[i], v[i + 8] = IV[i];
    v[12] ^= length, v[14] = ~v[14];
    for (int round = 0; round < 12; ++round) {
        const u8* s = SIGMA[round];
        mix(v[0], v[4], v[8], v[12], block[s[0]], block[s[1]]);
        mix(v[1], v[5], v[9], v[13], block[s[2]], block[s[3]]);
        mix(v[2], v[6], v[10], v[14], block[s[4]], block[s[5]]);
        mix(v[3], v[7], v[11], v[15], block[s[6]], block[s[7]]);
        mix(v[0], v[5], v[10], v[15], block[s[8]], block[s[9]]);
        mix(v[1], v[6], v[11], v[12], block[s[10]], block[s[11]]);
        mix(v[2], v[7], v[8], v[13], block[s[12]], block[s[13]]);
        mix(v[3], v[4], v[9], v[14], block[s[14]], block[s[15]]);
    }
    for (int i = 0; i < 8; ++i) h[i] ^= v[i] ^ v[i + 8];
    std::memcpy(out, h, size);
}

void hash_rows(const u8* rows, std::size_t width, const u64* numbers, const u8* salt, const u8* person,
               std::size_t count, std::size_t size, u8* out) {
    u64 block[16] = {};
    u8* bytes = reinterpret_cast<u8*>(block);
    std::memcpy(bytes + width, salt, SALT_BYTES);
    for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(bytes, rows + i * width, width);
        blake2b(block, width + SALT_BYTES, size, numbers[i], person, out + i * size);
    }
}

// ---- the cuckoo table

static inline u64 next_random(u64& state) {  // splitmix64: which of its bins an item moves to is no secret's shadow
    u64 z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

bool place(const u64* bins, std::size_t items, i64* table, u64 seed, u64 most) {
    for (std::size_t first = 0; first < items; ++first) {
        i64 item = static_cast<i64>(first);
        u64 moves = 0;
        for (;; ++moves) {
            const u64* own = bins + 3 * item;
            std::size_t free = 0;
            while (free < 3 && table[own[free]] >= 0) ++free;
            if (free < 3) {
                table[own[free]] = item;
                break;
            }
            if (moves == most) return false;
            std::swap(item, table[own[next_random(seed) % 3]]);
        }
    }
    return true;
}

// ---- rows

#if defined(__x86_64__)

#define HDCOS_AES_CODE __attribute__((target("aes,sse4.1")))
using ot::SCHEDULE_BYTES;

static inline __m128i load(const u8* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }
static inline void store(u8* at, __m128i x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(at), x); }

// 128 rows of 64 bytes: bit k of row i is bit i of the block that schedule k makes of the counter.
HDCOS_AES_CODE static void expand(const u8* schedules, u64 counter, u8* rows) {
    constexpr int AT_ONCE = 8, STEP = SCHEDULE_BYTES / 16;
    alignas(16) u8 streams[128 * 16], turned[128 * 16];
    const __m128i start = _mm_set_epi64x(0, static_cast<long long>(counter));
    for (std::size_t group = 0; group < GROUPS; ++group) {
        for (int first = 0; first < 128; first += AT_ONCE) {
            const __m128i* keys = reinterpret_cast<const __m128i*>(schedules + (128 * group + first) * SCHEDULE_BYTES);
            __m128i s[AT_ONCE];
            for (int i = 0; i < AT_ONCE; ++i) s[i] = _mm_xor_si128(start, _mm_loadu_si128(keys + i * STEP));
            for (int round = 1; round < ot::ROUNDS; ++round)
                for (int i = 0; i < AT_ONCE; ++i) s[i] = _mm_aesenc_si128(s[i], _mm_loadu_si128(keys + i * STEP + round));
            for (int i = 0; i < AT_ONCE; ++i)
                store(streams + 16 * (first + i),
                      _mm_aesenclast_si128(s[i], _mm_loadu_si128(keys + i * STEP + ot::ROUNDS)));
        }
        ot::transpose(streams, 16, turned);
        for (int row = 0; row < 128; ++row) store(rows + row * ROW_BYTES + 16 * group, load(turned + 16 * row));
    }
}

// The code word of an item: the item under four public keys.
HDCOS_AES void encode(const ot::Schedule (&code)[GROUPS], const u8* item, __m128i (&word)[GROUPS]) {
    const __m128i x = load(item);
    for (std::size_t g = 0; g < GROUPS; ++g) word[g] = _mm_xor_si128(x, code[g].key[0]);
    for (int round = 1; round < ot::ROUNDS; ++round)
        for (std::size_t g = 0; g < GROUPS; ++g) word[g] = _mm_aesenc_si128(word[g], code[g].key[round]);
    for (std::size_t g = 0; g < GROUPS; ++g) word[g] = _mm_aesenclast_si128(word[g], code[g].key[ot::ROUNDS]);
}

HDCOS_AES void load_code(const u8* schedules, ot::Schedule (&code)[GROUPS]) {
    for (std::size_t g = 0; g < GROUPS; ++g) code[g] = ot::load_schedule(schedules + g * SCHEDULE_BYTES);
}

HDCOS_AES_CODE void mask(const u8* zero, const u8* one, const u8* code_schedules, const u8* items, u64 first,
                         std::size_t count, u8* t, u8* u) {
    ot::Schedule code[GROUPS];
    load_code(code_schedules, code);
    for (std::size_t done = 0; done < count; done += 128, ++first) {
        expand(zero, first, t + done * ROW_BYTES);
        expand(one, first, u + done * ROW_BYTES);
        for (std::size_t row = done; row < done + 128; ++row) {
            __m128i word[GROUPS];
            encode(code, items + row * ITEM_BYTES, word);
            for (std::size_t g = 0; g < GROUPS; ++g) {
                const std::size_t at = row * ROW_BYTES + 16 * g;
                store(u + at, _mm_xor_si128(_mm_xor_si128(load(u + at), load(t + at)), word[g]));
            }
        }
    }
}

HDCOS_AES_CODE void unmask(const u8* seeds, const u8* secret, const u8* u, u64 first, std::size_t count, u8* q) {
    for (std::size_t done = 0; done < count; done += 128, ++first) {
        expand(seeds, first, q + done * ROW_BYTES);
        for (std::size_t at = done * ROW_BYTES; at < (done + 128) * ROW_BYTES; at += 16) {
            const __m128i chosen = _mm_and_si128(load(u + at), load(secret + at % ROW_BYTES));
            store(q + at, _mm_xor_si128(load(q + at), chosen));
        }
    }
}

HDCOS_AES_CODE void evaluate(const u8* q, const u8* secret, const u8* code_schedules, const u8* items, const u64* bins,
                             const u8* salt, const u8* person, std::size_t count, u8* out) {
    constexpr std::size_t AHEAD = 8;  // rows lie anywhere in memory: they are asked for before they are wanted
    ot::Schedule code[GROUPS];
    load_code(code_schedules, code);
    u64 block[16] = {};
    u8* bytes = reinterpret_cast<u8*>(block);
    std::memcpy(bytes + ROW_BYTES, salt, SALT_BYTES);
    for (std::size_t i = 0; i < count; ++i) {
        if (i + AHEAD < count) __builtin_prefetch(q + bins[i + AHEAD] * ROW_BYTES);
        __m128i word[GROUPS];
        encode(code, items + i * ITEM_BYTES, word);
        const u8* row = q + bins[i] * ROW_BYTES;
        for (std::size_t g = 0; g < GROUPS; ++g) {
            const __m128i chosen = _mm_and_si128(word[g], load(secret + 16 * g));
            store(bytes + 16 * g, _mm_xor_si128(load(row + 16 * g), chosen));
        }
        blake2b(block, ROW_BYTES + SALT_BYTES, VALUE_BYTES, bins[i], person, out + i * VALUE_BYTES);
    }
}

#else

[[noreturn]] static void missing() { throw std::runtime_error("no AES instructions were compiled for this processor"); }
void mask(const u8*, const u8*, const u8*, const u8*, u64, std::size_t, u8*, u8*) { missing(); }
void unmask(const u8*, const u8*, const u8*, u64, std::size_t, u8*) { missing(); }
void evaluate(const u8*, const u8*, const u8*, const u8*, const u64*, const u8*, const u8*, std::size_t, u8*) {
    missing();
}

#endif

}  // namespace hdcos::oprf
