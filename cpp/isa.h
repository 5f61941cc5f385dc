// Declarations of one instruction set's kernels, for the table in isa.cpp. See kernels.h for the arguments.
#pragma once

#include "kernels.h"

namespace hdcos::HDCOS_ISA {

void matmul(const u64* a, const u64* b, u64* c, std::size_t n, std::size_t d, std::size_t k);
void conv2d(const u64* x, const u64* weight, u64* out, const Conv& shape);
void walsh_hadamard(const u64* x, u64* out, std::size_t rows, std::size_t n);
void round_open(const u64* x, const void* mask, void* out, std::size_t itemsize, std::size_t count, int drop,
                int bits, bool ties_up);
void pack(Compact values, std::uint8_t* out, std::size_t count, int bits);
void unpack(const std::uint8_t* buffer, std::size_t size, void* out, std::size_t itemsize, std::size_t count,
            int bits);
void unpack_sum(const std::uint8_t* buffer, std::size_t size, const void* values, void* out, std::size_t itemsize,
                std::size_t count, int bits);
void trig_words(Compact phase, i64* cos, i64* sin, std::size_t count, const Trig& trig);
void dither(const i64* x, const u64* coins, u64* out, std::size_t count, int drop);
void trig_combine(Compact phase, const u64* cos_share, const u64* sin_share, u64* out, std::size_t count,
                  const Trig& trig, const Series& series);
void rotate(Compact phase, const u64* a, const u64* b, u64* cosine, u64* sine, std::size_t count,
            const Trig& trig);
void hadamard_cos(const Cosine* z, const u64* bias, u64* out, const HadamardLayer& shape, const Trig& trig);
void hadamard_cos_open(const Cosine* z, const u64* bias, void* out, const HadamardLayer& shape, const Trig& trig,
                       const Opening& opening);
void hadamard_back(const LiftedRows& x, const FusedTerms* terms, const BackFactors& factors, u64* total, u64* step,
                   void* out, const BackShape& shape, const Trig& trig, const Opening& opening);
void spread(const u64* x, u64* out, std::size_t rows, const Pool& pool);
void pool_sum(const u64* x, u64* out, std::size_t rows, const Pool& pool);
void lifted_sums(const LiftedRows& x, const MaskedRows& w, const u64* m_mask, const u64* b_mask, u64* total, u64* sums,
                 std::size_t rows, std::size_t width, std::size_t units);
void lifted_times(const u64* E, const u64* t, const u64* factor, const u64* m_factor, const u64* b_factor, u64* out,
                  const LiftedShape& shape);
void lifted_product(const u64* E, const u64* t, const u64* m, const u64* b, const u64* opened, const u64* mask,
                    const u64* m_mask, const u64* b_mask, u64* out, bool with_public, const LiftedShape& shape);
void sign_lookup(Compact D, const SignBlock* blocks, std::size_t number, const std::uint8_t* masks, std::uint8_t* first,
                 std::uint8_t* asked, std::size_t count, int bits, bool with_public);
void sign_combine(const std::uint8_t* opened, const std::uint8_t* masks, Compact products, const std::uint8_t* first,
                  const u64* rules, std::uint8_t* out, std::size_t count, int mask_bits, bool with_public);

}  // namespace hdcos::HDCOS_ISA
