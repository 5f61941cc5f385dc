// Material of a whole chunk at once: many fields, each with a key stream and a place of its own.
#pragma once

#include "kernels.h"

#include <cstddef>
#include <cstdint>

namespace hdcos {

// The bytes that a value of `bits` bits takes in memory.
inline std::size_t item_bytes(int bits) { return bits <= 8 ? 1 : bits <= 16 ? 2 : bits <= 32 ? 4 : 8; }

// One field: `count` values of `bits` bits, read from byte `offset` of the stream of its key on; `start` is the byte that
// it begins at in the chunk.
struct FieldPlace {
    const std::uint8_t* key;
    u64 offset, start, count;
    int bits;
    bool by_xor = false;  // shared by XOR, not by sums
};

// The shares of fields: each value in the smallest of 1, 2, 4 or 8 bytes that holds it.
void expand_fields(const FieldPlace* fields, std::size_t number, std::uint8_t* out);

// What is left of the values of a field when its share is taken away, packed.
void correct_field(const Kernels& kernels, const FieldPlace& field, const u64* values, std::uint8_t* out);

}  // namespace hdcos
