// Oblivious transfer's loops over raw memory: seed expansion, transposition of bits, pads of correlated transfers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hdcos::ot {

using u8 = std::uint8_t;
using u64 = std::uint64_t;

constexpr std::size_t LEAVES = 16;         // seeds of one block
constexpr std::size_t FIELD_BITS = 4;      // log2 of that
constexpr std::size_t SCHEDULE_BYTES = 176;  // round keys of AES-128

// Whether this processor has the instructions; without them nothing below may be called.
bool available();

void key_schedule(const u8* keys, u8* schedules, std::size_t count);

// Per block of 16 seeds the streams s_x = AES(seed_x, counter): u = sum of s_x, v_i = sum of those with bit i of x set.
// `u` may be nullptr, and then s_0 is not needed nor used.
void combine(const u8* schedules, std::size_t blocks, u64 first, std::size_t counters, u8* u, u8* v);

// Bit j of row i becomes bit i of row j; `rows` has 128 rows of `bytes` bytes, `out` has 8 * bytes rows of 16.
void transpose(const u8* rows, std::size_t bytes, u8* out);

// A piece of a product: elements [first, first + count) of the chooser's factor at one of its bits.
// Element e takes vector e % rows, and its product goes to sum e / fold.
struct Piece {
    std::size_t first, count, rows, fold, length;
    u64 index;  // number of the first transfer
    int bit;
    bool negative;  // the bit counts -2**bit
    int coarse;     // sums are in units of 2**coarse; vectors are rounded to what matters there, odd rows ties down

    int shift() const { return bit > coarse ? bit - coarse : 0; }
    int down() const { return coarse > bit ? coarse - bit : 0; }
};

// message = pad(q) + x - pad(q + delta); sums -= pad(q) << shift. signs: x is negated where that bit of them is set.
void send(const u8* q, const u8* delta, const u8* schedule, const u64* vectors, const u64* signs, const Piece& piece,
          u64* messages, u64* sums);

// sums += (pad(t) + choice * message) << shift.
void receive(const u8* t, const u8* schedule, const u64* choices, const u64* messages, const Piece& piece, u64* sums);

}  // namespace hdcos::ot
