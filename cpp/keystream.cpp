// AES-256 in counter mode for processors with vector AES: the key stream itself, written where it is wanted.
//
// The instructions take the same time whatever key and data are. Counters are 128-bit big-endian numbers, as in
// NIST SP 800-38A; here they stay below 2**64.
#include "keystream.h"

#if defined(HDCOS_X86_LEVELS)

#include <immintrin.h>

#include <cstring>

namespace hdcos {

constexpr int ROUNDS = 14;
constexpr int VECTORS = 8;  // of four blocks each, encrypted at a time
constexpr std::size_t VECTOR_BYTES = 64, BLOCK_BYTES = 16;

static __m128i folded(__m128i key) {
    key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
    return _mm_xor_si128(key, _mm_slli_si128(key, 8));
}

template <int RCON>
static void next_pair(__m128i* keys) {
    const __m128i even = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(keys[1], RCON), 0xFF);
    keys[2] = _mm_xor_si128(folded(keys[0]), even);
    const __m128i odd = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(keys[2], 0), 0xAA);
    keys[3] = _mm_xor_si128(folded(keys[1]), odd);
}

// The 15 round keys of FIPS 197.
static void schedule(const std::uint8_t* key, __m512i* rounds) {
    __m128i keys[16];
    keys[0] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(key));
    keys[1] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(key + 16));
    next_pair<0x01>(keys), next_pair<0x02>(keys + 2), next_pair<0x04>(keys + 4), next_pair<0x08>(keys + 6);
    next_pair<0x10>(keys + 8), next_pair<0x20>(keys + 10), next_pair<0x40>(keys + 12);
    for (int i = 0; i <= ROUNDS; ++i) rounds[i] = _mm512_broadcast_i32x4(keys[i]);
}

KeyStream::KeyStream(const std::uint8_t* key) { schedule(key, reinterpret_cast<__m512i*>(rounds_)); }

void KeyStream::read(std::uint64_t offset, std::uint64_t keep, std::uint8_t* out, std::size_t size) const {
    const std::size_t skip = offset % BLOCK_BYTES;
    if (skip) {
        std::uint8_t block[BLOCK_BYTES];
        blocks(offset / BLOCK_BYTES, keep, block, BLOCK_BYTES);
        const std::size_t begun = size < BLOCK_BYTES - skip ? size : BLOCK_BYTES - skip;
        std::memcpy(out, block + skip, begun);
        offset += begun, out += begun, size -= begun;
    }
    blocks(offset / BLOCK_BYTES, keep, out, size);
}

void KeyStream::blocks(std::uint64_t block, std::uint64_t keep, std::uint8_t* out, std::size_t size) const {
    const __m512i* rounds = reinterpret_cast<const __m512i*>(rounds_);
    const __m512i reversed = _mm512_broadcast_i32x4(_mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m512i kept = _mm512_set1_epi64(static_cast<long long>(keep)), four = _mm512_set_epi64(0, 4, 0, 4, 0, 4, 0, 4);
    const __m512i first = _mm512_set1_epi64(static_cast<long long>(block));
    __m512i counter = _mm512_maskz_add_epi64(0x55, first, _mm512_set_epi64(0, 3, 0, 2, 0, 1, 0, 0));
    for (std::size_t done = 0; done < size; done += VECTORS * VECTOR_BYTES) {
        __m512i state[VECTORS];
        for (int i = 0; i < VECTORS; ++i) {
            state[i] = _mm512_xor_si512(_mm512_shuffle_epi8(counter, reversed), rounds[0]);
            counter = _mm512_add_epi64(counter, four);
        }
        for (int round = 1; round < ROUNDS; ++round)
            for (int i = 0; i < VECTORS; ++i) state[i] = _mm512_aesenc_epi128(state[i], rounds[round]);
        for (int i = 0; i < VECTORS; ++i)
            state[i] = _mm512_and_si512(_mm512_aesenclast_epi128(state[i], rounds[ROUNDS]), kept);
        const std::size_t left = size - done;
        if (left >= sizeof(state))
            for (int i = 0; i < VECTORS; ++i) _mm512_storeu_si512(out + done + i * VECTOR_BYTES, state[i]);
        else
            std::memcpy(out + done, state, left);
    }
}

}  // namespace hdcos

#else

namespace hdcos {

KeyStream::KeyStream(const std::uint8_t*) {}
void KeyStream::read(std::uint64_t, std::uint64_t, std::uint8_t*, std::size_t) const {}

}  // namespace hdcos

#endif
