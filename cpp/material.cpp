#include "material.h"

#include "keystream.h"

#include <algorithm>
#include <cstring>

namespace hdcos {

constexpr std::size_t BLOCK = 2048;  // values that stay in the cache while a block is expanded, subtracted and packed

// The low `bits` bits of every value in a word of 8 bytes.
static u64 kept(int bits) {
    const int width = 8 * static_cast<int>(item_bytes(bits));
    const u64 low = bits == 64 ? ~u64{0} : (u64{1} << bits) - 1;
    u64 keep = 0;
    for (int start = 0; start < 64; start += width) keep |= low << start;
    return keep;
}

void expand_fields(const FieldPlace* fields, std::size_t number, std::uint8_t* out) {
    for (std::size_t i = 0; i < number; ++i) {
        const FieldPlace& field = fields[i];
        KeyStream(field.key).read(field.offset, kept(field.bits), out + field.start, field.count * item_bytes(field.bits));
    }
}

template <class T>
static void correct_as(const Kernels& kernels, const FieldPlace& field, const u64* values, std::uint8_t* out) {
    const KeyStream stream(field.key);
    const bool exact = field.bits == 8 * static_cast<int>(sizeof(T));
    alignas(64) T share[BLOCK];
    for (u64 done = 0; done < field.count; done += BLOCK) {
        const std::size_t count = std::min<u64>(BLOCK, field.count - done);
        stream.read(field.offset + done * sizeof(T), ~u64{0}, reinterpret_cast<std::uint8_t*>(share), count * sizeof(T));
        if (field.by_xor)
            for (std::size_t i = 0; i < count; ++i) share[i] ^= static_cast<T>(values[done + i]);
        else
            for (std::size_t i = 0; i < count; ++i) share[i] = static_cast<T>(values[done + i]) - share[i];
        std::uint8_t* place = out + done / 8 * field.bits;  // a block is whole bytes
        if (exact)
            std::memcpy(place, share, count * sizeof(T));
        else
            kernels.pack({share, sizeof(T)}, place, count, field.bits);
    }
}

void correct_field(const Kernels& kernels, const FieldPlace& field, const u64* values, std::uint8_t* out) {
    switch (item_bytes(field.bits)) {
        case 1: return correct_as<std::uint8_t>(kernels, field, values, out + field.start);
        case 2: return correct_as<std::uint16_t>(kernels, field, values, out + field.start);
        case 4: return correct_as<std::uint32_t>(kernels, field, values, out + field.start);
        default: return correct_as<u64>(kernels, field, values, out + field.start);
    }
}

}  // namespace hdcos
