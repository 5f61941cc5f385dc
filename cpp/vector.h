// Vectors of ring words, as wide as the instruction set this file is compiled for.
//
// Sources that are compiled more than once must not use templates or inline functions of the standard library: the
// linker keeps one copy of those, possibly one that needs instructions the host does not have.
#pragma once

#include "kernels.h"

#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#ifndef HDCOS_ISA
#error "HDCOS_ISA names the namespace: baseline, v3 or v4"
#endif

namespace hdcos::HDCOS_ISA {

#if defined(__AVX512DQ__)
constexpr int LANES = 8;
#elif defined(__AVX2__)
constexpr int LANES = 4;
#else
constexpr int LANES = 2;
#endif

typedef u64 Vec __attribute__((vector_size(8 * LANES)));
typedef u64 LooseVec __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

static inline Vec load(const u64* p) { return *reinterpret_cast<const LooseVec*>(p); }
static inline void store(u64* p, Vec v) { *reinterpret_cast<LooseVec*>(p) = v; }
static inline Vec splat(u64 value) { return Vec{} + value; }

// Products of the low halves of words, as unsigned and as signed numbers.
#if defined(__AVX512DQ__)
static inline Vec product(Vec a, Vec b) { return (Vec)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b); }
static inline Vec signed_product(Vec a, Vec b) { return (Vec)_mm512_maskz_mul_epi32(0xff, (__m512i)a, (__m512i)b); }
#elif defined(__AVX2__)
static inline Vec product(Vec a, Vec b) { return (Vec)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
static inline Vec signed_product(Vec a, Vec b) { return (Vec)_mm256_mul_epi32((__m256i)a, (__m256i)b); }
#else
static inline Vec product(Vec a, Vec b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
static inline Vec signed_product(Vec a, Vec b) {
    Vec c;
    for (int i = 0; i < LANES; ++i)
        c[i] = static_cast<u64>(i64{static_cast<std::int32_t>(a[i])} * static_cast<std::int32_t>(b[i]));
    return c;
}
#endif

// The lanes of a and b, counted through, at the given places.
#if defined(__clang__)
#define HDCOS_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define HDCOS_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Vec{__VA_ARGS__})
#endif

static inline std::size_t smaller(std::size_t a, std::size_t b) { return a < b ? a : b; }

// Scratch words, aligned to a cache line.
class Scratch {
  public:
    explicit Scratch(std::size_t words)
        : data_(static_cast<u64*>(std::aligned_alloc(64, (words * 8 + 63) / 64 * 64 + 64))) {
        if (!data_) throw std::bad_alloc();
    }
    ~Scratch() { std::free(data_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    u64* get() const { return data_; }

  private:
    u64* data_;
};

}  // namespace hdcos::HDCOS_ISA
