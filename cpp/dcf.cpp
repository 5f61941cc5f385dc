// Every node of a tree is a seed of 125 bits and a bit t. Its children come from H(x) = P(x) ^ x, where P is AES-128 under
// the public key of its unit and x the seed with the side in its lowest bit: bit 0 of H is the child's t, bit 1 its value,
// and the bits above the third its seed. On the path to the point the two parties' t differ, elsewhere their nodes are equal and
// cancel. A word corrects seeds where t is set; its low three bits correct t on either side, and the value.
//
// Nothing here branches or indexes memory by a secret: the path of an evaluation is public, that of a point is masked.
#include "dcf.h"

#include "aes.h"

#include <cstring>
#include <stdexcept>

namespace hdcos::dcf {

#if defined(__x86_64__)

#define HDCOS_AES_CODE __attribute__((target("aes,sse4.1")))

constexpr int TOGETHER = 8;  // evaluations at a time: the processor's AES is pipelined

HDCOS_AES ot::Schedule permutation(const u64* cipher) {
    std::uint8_t bytes[ot::SCHEDULE_BYTES];
    ot::key_schedule(reinterpret_cast<const std::uint8_t*>(cipher), bytes, 1);
    return ot::load_schedule(bytes);
}

template <int N>
HDCOS_AES void hash(__m128i (&block)[N], const ot::Schedule& P) {
    __m128i input[N];
    for (int i = 0; i < N; ++i) input[i] = block[i];
    ot::encrypt(block, P.key);
    for (int i = 0; i < N; ++i) block[i] = _mm_xor_si128(block[i], input[i]);
}

HDCOS_AES __m128i load(const u64* words) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(words)); }
HDCOS_AES u64 low(__m128i x) { return static_cast<u64>(_mm_cvtsi128_si64(x)); }
HDCOS_AES __m128i at_bottom(u64 word) { return _mm_cvtsi64_si128(static_cast<long long>(word)); }
HDCOS_AES __m128i where(u64 bit) { return _mm_set1_epi64x(-static_cast<long long>(bit)); }
HDCOS_AES __m128i seed_of(__m128i x) { return _mm_andnot_si128(at_bottom(7), x); }

HDCOS_AES_CODE void make_words(const u64* cipher, Units units, const u64* root0, const u64* root1, Compact mask, u64* words,
                               int bits) {
    const int depth = levels(bits), n = bits - 1;
    ot::Schedule P{};
    for (std::size_t i = 0; i < units.number * units.size; ++i) {
        if (i % units.size == 0) P = permutation(cipher + 2 * (i / units.size));
        const u64 point = value_of(mask, i), top = point >> n & 1;
        u64* word = words + i * 2 * (depth + 1);
        __m128i seed[2] = {seed_of(load(root0 + 2 * i)), seed_of(load(root1 + 2 * i))};
        u64 t[2] = {0, 1}, value = 0;
        for (int level = 0; level < depth; ++level, word += 2) {
            __m128i child[4];  // left and right of party 0, then of party 1
            for (int c = 0; c < 4; ++c) child[c] = _mm_or_si128(seed[c >> 1], at_bottom(c & 1));
            hash(child, P);
            const u64 a = point >> (n - 1 - level) & 1;
            const __m128i right = where(a);
            __m128i keep[2], lose[2];
            for (int b = 0; b < 2; ++b) {
                keep[b] = _mm_blendv_epi8(child[2 * b], child[2 * b + 1], right);
                lose[b] = _mm_blendv_epi8(child[2 * b + 1], child[2 * b], right);
            }
            const __m128i correction = _mm_xor_si128(lose[0], lose[1]);
            const u64 left_t = (low(child[0]) ^ low(child[2]) ^ a ^ 1) & 1, right_t = (low(child[1]) ^ low(child[3]) ^ a) & 1;
            const u64 value_word = (low(correction) >> 1 & 1) ^ value ^ top ^ a;
            const __m128i whole = _mm_or_si128(seed_of(correction), at_bottom(left_t | right_t << 1 | value_word << 2));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(word), whole);
            value ^= ((low(keep[0]) ^ low(keep[1])) >> 1 & 1) ^ value_word;
            const u64 kept_t = (left_t & (a ^ 1)) | (right_t & a);
            for (int b = 0; b < 2; ++b) {
                seed[b] = _mm_xor_si128(seed_of(keep[b]), _mm_and_si128(seed_of(correction), where(t[b])));
                t[b] = (low(keep[b]) & 1) ^ (t[b] & kept_t);
            }
        }
        __m128i leaf[2];
        for (int b = 0; b < 2; ++b) leaf[b] = _mm_or_si128(seed[b], at_bottom(2));
        hash(leaf, P);
        // Ones below the point; a shift by 64 is none.
        const u64 place = point & ((u64{1} << (n < LEAF_BITS ? n : LEAF_BITS)) - 1), upper = u64{0} - (place >> 6);
        const u64 part = (u64{1} << (place & 63)) - 1, flip = u64{0} - (value ^ top);
        const __m128i below = _mm_set_epi64x(static_cast<long long>((part & upper) ^ flip),
                                             static_cast<long long>((part | upper) ^ flip));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(word), _mm_xor_si128(_mm_xor_si128(leaf[0], leaf[1]), below));
    }
}

template <int N>
HDCOS_AES void evaluate_some(const u64* root, const u64* words, Compact D, std::uint8_t* out, std::size_t first, int bits,
                             bool second, const ot::Schedule& P) {
    const int depth = levels(bits), n = bits - 1;
    const std::size_t stride = 2 * (static_cast<std::size_t>(depth) + 1);
    const u64* word = words + first * stride;
    __m128i seed[N], node[N];
    u64 x[N], t[N], value[N];
    for (int i = 0; i < N; ++i) {
        x[i] = value_of(D, first + i);
        seed[i] = seed_of(load(root + 2 * (first + i)));
        t[i] = second;
        value[i] = second ? 0 : 1 ^ (x[i] >> n & 1);
    }
    for (int level = 0; level < depth; ++level) {
        for (int i = 0; i < N; ++i) node[i] = _mm_or_si128(seed[i], at_bottom(x[i] >> (n - 1 - level) & 1));
        hash(node, P);
        for (int i = 0; i < N; ++i) {
            const __m128i correction = load(word + i * stride + 2 * level);
            const u64 side = x[i] >> (n - 1 - level) & 1, bit = low(node[i]), fix = low(correction);
            value[i] ^= (bit >> 1 ^ (t[i] & fix >> 2)) & 1;
            seed[i] = seed_of(_mm_xor_si128(node[i], _mm_and_si128(correction, where(t[i]))));
            t[i] = (bit ^ (t[i] & fix >> side)) & 1;
        }
    }
    for (int i = 0; i < N; ++i) node[i] = _mm_or_si128(seed[i], at_bottom(2));
    hash(node, P);
    for (int i = 0; i < N; ++i) {
        const u64 place = x[i] & ((u64{1} << (n < LEAF_BITS ? n : LEAF_BITS)) - 1);
        u64 leaves[2];
        _mm_storeu_si128(reinterpret_cast<__m128i*>(leaves),
                         _mm_xor_si128(node[i], _mm_and_si128(load(word + i * stride + 2 * depth), where(t[i]))));
        out[first + i] = static_cast<std::uint8_t>((value[i] ^ leaves[place >> 6] >> (place & 63)) & 1);
    }
}

HDCOS_AES_CODE void evaluate(const u64* cipher, Units units, const u64* root, const u64* words, Compact D, std::uint8_t* out,
                             int bits, bool second) {
    for (std::size_t unit = 0; unit < units.number; ++unit) {
        const ot::Schedule P = permutation(cipher + 2 * unit);
        const std::size_t end = (unit + 1) * units.size;
        std::size_t i = unit * units.size;
        for (; i + TOGETHER <= end; i += TOGETHER) evaluate_some<TOGETHER>(root, words, D, out, i, bits, second, P);
        for (; i < end; ++i) evaluate_some<1>(root, words, D, out, i, bits, second, P);
    }
}

#else

void make_words(const u64*, Units, const u64*, const u64*, Compact, u64*, int) {
    throw std::logic_error("no AES instructions on this processor");
}
void evaluate(const u64*, Units, const u64*, const u64*, Compact, std::uint8_t*, int, bool) {
    throw std::logic_error("no AES instructions on this processor");
}

#endif

}  // namespace hdcos::dcf
