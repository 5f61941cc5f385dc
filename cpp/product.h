// Sums of products modulo 2**64.
//
// With a 64-bit vector multiply a product is one instruction. AVX2 has only 32-bit ones: of x = x1 * 2**32 + x0, the
// sums of x0 * y0 and of the two crossed halves are kept apart, and the crossed sum is shifted up once at the end.
#pragma once

#include "vector.h"

#if defined(__AVX2__) && !defined(__AVX512DQ__)
#include <immintrin.h>
#endif

namespace hdcos::HDCOS_ISA {

#if defined(__AVX2__) && !defined(__AVX512DQ__)

struct Left {
    __m256i word, swapped;
    explicit Left(u64 a)
        : word(_mm256_set1_epi64x(static_cast<long long>(a))), swapped(_mm256_shuffle_epi32(word, 0xB1)) {}
};

struct Sum {
    __m256i low = _mm256_setzero_si256(), crossed = _mm256_setzero_si256();

    void add(const Left& a, Vec b) {
        const __m256i right = reinterpret_cast<__m256i>(b);
        low = _mm256_add_epi64(low, _mm256_mul_epu32(a.word, right));
        crossed = _mm256_add_epi32(crossed, _mm256_mullo_epi32(a.swapped, right));
    }
    Vec total() const {
        const __m256i both = _mm256_add_epi32(crossed, _mm256_slli_epi64(crossed, 32));
        const __m256i high = _mm256_slli_epi64(_mm256_srli_epi64(both, 32), 32);
        return reinterpret_cast<Vec>(_mm256_add_epi64(low, high));
    }
};

#else

struct Left {
    Vec word;
    explicit Left(u64 a) : word(splat(a)) {}
};

struct Sum {
    Vec sum = {};

    void add(const Left& a, Vec b) { sum += a.word * b; }
    Vec total() const { return sum; }
};

#endif

}  // namespace hdcos::HDCOS_ISA
