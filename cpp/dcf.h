// Distributed comparison functions over raw memory, with AES instructions: keys for many points, and their evaluation.
//
// A key is a root of 16 bytes, which each party has for itself, and words of 16 bytes that both have: one for each level
// of the tree above the last seven, and one for those. Seeds are expanded with AES under a public key, `cipher`, of which
// every unit of values has its own. The specification is hdcos/ring/reference_sign.py.
#pragma once

#include "kernels.h"

namespace hdcos::dcf {

constexpr int LEAF_BITS = 7;  // the last word has a bit for each of 128 leaves

inline int levels(int bits) { return bits - 1 > LEAF_BITS ? bits - 1 - LEAF_BITS : 0; }

struct Units {
    std::size_t number, size;
};

// The words of keys for [low(x) < low(mask)] ^ top(mask), where low is all but the top of `bits` bits.
void make_words(const u64* cipher, Units units, const u64* root0, const u64* root1, Compact mask, u64* words, int bits);

// One party's share, by XOR, of 1 ^ top(D) ^ top(mask) ^ [low(D) < low(mask)].
void evaluate(const u64* cipher, Units units, const u64* root, const u64* words, Compact D, std::uint8_t* out, int bits,
              bool second);

}  // namespace hdcos::dcf
