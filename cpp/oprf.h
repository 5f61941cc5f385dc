// The loops of a private join: rows of an oblivious pseudorandom function, its values, and a cuckoo table.
//
// A row is 512 bits, 64 bytes, one for each bin of the table. See src/hdcos/join/reference.py, which specifies all of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ot.h"

namespace hdcos::oprf {

using u8 = std::uint8_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

constexpr std::size_t ROW_BYTES = 64;       // 512 transfers
constexpr std::size_t GROUPS = 4;           // of 128 transfers, one block of AES each
constexpr std::size_t ITEM_BYTES = 16;
constexpr std::size_t VALUE_BYTES = 12;
constexpr std::size_t SALT_BYTES = 32;      // behind what is hashed
constexpr std::size_t PERSON_BYTES = 16;    // what a hash is for
constexpr std::size_t MOST_HASHED = 96;     // with the salt, one block of BLAKE2b

// t = rows of the streams of `zero`, u = t + rows of the streams of `one` + code(item). `count` is a multiple of 128.
void mask(const u8* zero, const u8* one, const u8* code, const u8* items, u64 first, std::size_t count, u8* t, u8* u);

// q = rows of the streams of `seeds` + (secret and u).
void unmask(const u8* seeds, const u8* secret, const u8* u, u64 first, std::size_t count, u8* q);

// The values of items in bins: hash(bin, q[bin] + (secret and code(item))).
void evaluate(const u8* q, const u8* secret, const u8* code, const u8* items, const u64* bins, const u8* salt,
              const u8* person, std::size_t count, u8* out);

// BLAKE2b of each row and the salt; the row's number is the hash's own salt.
void hash_rows(const u8* rows, std::size_t width, const u64* numbers, const u8* salt, const u8* person,
               std::size_t count, std::size_t size, u8* out);

// Each item into one of its three bins, none into a bin that is taken; false if there is no way within `most` moves.
bool place(const u64* bins, std::size_t items, i64* table, u64 seed, u64 most);

}  // namespace hdcos::oprf
