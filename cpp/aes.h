// AES-128 with the processor's instructions, and the hash made of it: pad(x, j, n) = P(P(x) + (j, n)) + P(x).
//
// P is AES under a key that is public and new in every session. The hash is the tweakable one of Guo, Katz, Wang, Weng
// and Yu (CRYPTO 2020): outputs for distinct tweaks (j, n) look random and unrelated even where inputs differ by a
// secret constant. Nothing here branches or indexes memory by a secret.
#pragma once

#include "ot.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define HDCOS_AES __attribute__((target("aes,sse4.1"), always_inline)) static inline

namespace hdcos::ot {

constexpr int ROUNDS = 10;

// N independent blocks at once: the unit is pipelined.
template <int N>
HDCOS_AES void encrypt(__m128i (&block)[N], const __m128i* key) {
    for (int i = 0; i < N; ++i) block[i] = _mm_xor_si128(block[i], key[0]);
    for (int round = 1; round < ROUNDS; ++round)
        for (int i = 0; i < N; ++i) block[i] = _mm_aesenc_si128(block[i], key[round]);
    for (int i = 0; i < N; ++i) block[i] = _mm_aesenclast_si128(block[i], key[ROUNDS]);
}

struct Schedule {
    __m128i key[ROUNDS + 1];
};

HDCOS_AES Schedule load_schedule(const u8* bytes) {
    Schedule loaded;
    for (int i = 0; i <= ROUNDS; ++i) loaded.key[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes) + i);
    return loaded;
}

}  // namespace hdcos::ot
#endif
