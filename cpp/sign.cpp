// The sign of an opened value by one-time truth tables: look-ups at public places, and products of bits that were opened
// masked. Words are shared by XOR. Memory is indexed by public numbers alone.
#include "kernels.h"

#include "isa.h"

namespace hdcos::HDCOS_ISA {

// Bit x of a table is [x < m]; that before the first is 1, which party 0 has. Equality is the difference of neighbours.
template <class V, class T>
static void look_up(const V* D, const T* table, std::size_t count, const SignBlock& block, u64 before,
                    std::uint8_t* first, std::uint8_t* asked) {
    const u64 keep = (u64{1} << block.width) - 1;
    for (std::size_t i = 0; i < count; ++i) {
        const u64 x = static_cast<u64>(D[i]) >> block.shift & keep, bits = table[i];
        const u64 below = bits >> x & 1, equal = below ^ ((bits << 1 | before) >> x & 1);
        u64 word = 0;
        if (block.below_at < 0) first[i] ^= static_cast<std::uint8_t>(below);
        else word |= below << block.below_at;
        if (block.equal_at >= 0) word |= equal << block.equal_at;
        asked[i] ^= static_cast<std::uint8_t>(word);
    }
}

template <class V>
static void look_up_in(const V* D, std::size_t count, const SignBlock& block, u64 before, std::uint8_t* first,
                       std::uint8_t* asked) {
    const void* const table = block.table.data;
    switch (block.table.itemsize) {
        case 1: return look_up(D, static_cast<const std::uint8_t*>(table), count, block, before, first, asked);
        case 2: return look_up(D, static_cast<const std::uint16_t*>(table), count, block, before, first, asked);
        case 4: return look_up(D, static_cast<const std::uint32_t*>(table), count, block, before, first, asked);
        default: return look_up(D, static_cast<const u64*>(table), count, block, before, first, asked);
    }
}

void sign_lookup(Compact D, const SignBlock* blocks, std::size_t number, const std::uint8_t* masks, std::uint8_t* first,
                 std::uint8_t* asked, std::size_t count, int bits, bool with_public) {
    const u64 before = with_public;
    for (std::size_t i = 0; i < count; ++i) {
        first[i] = static_cast<std::uint8_t>(before & (~value_of(D, i) >> (bits - 1)));
        asked[i] = masks[i];
    }
    for (std::size_t j = 0; j < number; ++j) switch (D.itemsize) {
            case 1: look_up_in(static_cast<const std::uint8_t*>(D.data), count, blocks[j], before, first, asked); break;
            case 2: look_up_in(static_cast<const std::uint16_t*>(D.data), count, blocks[j], before, first, asked); break;
            default: look_up_in(static_cast<const std::uint32_t*>(D.data), count, blocks[j], before, first, asked);
        }
}

void sign_combine(const std::uint8_t* opened, const std::uint8_t* masks, Compact products, const std::uint8_t* first,
                  const u64* rules, std::uint8_t* out, std::size_t count, int mask_bits, bool with_public) {
    const u64 constant = static_cast<u64>(with_public) << 63;
    for (std::size_t i = 0; i < count; ++i) {
        const u64 word = masks[i] | value_of(products, i) << mask_bits | constant;
        out[i] = first[i] ^ static_cast<std::uint8_t>(__builtin_parityll(word & rules[opened[i]]));
    }
}

}  // namespace hdcos::HDCOS_ISA
