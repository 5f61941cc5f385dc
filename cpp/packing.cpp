// Rounding to few bits and packing those bits.
#include "vector.h"

#include "isa.h"

namespace hdcos::HDCOS_ISA {

using Byte = std::uint8_t;
__extension__ typedef unsigned __int128 Wide;

static inline u64 low_bits(int bits) { return bits == 64 ? ~u64{0} : (u64{1} << bits) - 1; }

// Words are little-endian in memory on the hosts this is built for; the build refuses others.
static inline u64 read_word(const Byte* p) {
    u64 word;
    std::memcpy(&word, p, 8);
    return word;
}
static inline void write_word(Byte* p, u64 word) { std::memcpy(p, &word, 8); }

template <class T>
static void round_open_as(const u64* x, const T* mask, T* out, std::size_t count, int drop, int bits,
                          bool ties_up) {
    const u64 half = drop ? (u64{1} << (drop - 1)) - !ties_up : 0, keep = low_bits(bits);
    if (mask)
        for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<T>((((x[i] + half) >> drop) + mask[i]) & keep);
    else
        for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<T>(((x[i] + half) >> drop) & keep);
}

// One value at a time, from a byte boundary on.
template <class T>
static void pack_slowly(const T* values, Byte* out, std::size_t count, int bits) {
    Wide pending = 0;
    int fill = 0;
    for (std::size_t i = 0; i < count; ++i) {
        pending |= static_cast<Wide>(values[i] & low_bits(bits)) << fill;
        fill += bits;
        if (fill >= 64) {
            write_word(out, static_cast<u64>(pending));
            out += 8, fill -= 64, pending >>= 64;
        }
    }
    for (; fill > 0; fill -= 8, pending >>= 8) *out++ = static_cast<Byte>(pending);
}

// Eight values of 33 to 63 bits are `bits` whole bytes: each is one store from the byte it begins in, together with what
// the value before it left in that byte. What it writes beyond its own end the next store repairs; what of it does not
// fit into the store lies in the byte that the next one begins in.
static std::size_t pack_wide(const u64* values, Byte* out, std::size_t count, int bits) {
    const u64 keep = low_bits(bits);
    const Byte* end = out + (count * bits + 7) / 8;
    std::size_t i = 0;
    for (; i + 8 <= count && end - out >= bits + 8; i += 8, out += bits) {
        u64 before = 0;
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            const int shift = j * bits % 8;
            const u64 value = values[i + j] & keep;
            write_word(out + j * bits / 8, value << shift | before >> (bits - shift));
            before = value;
        }
    }
    return i;
}

// Eight values are `bits` whole bytes: two halves of 4 * bits, the second of which may begin inside a byte.
template <class T>
static void pack_as(const T* values, Byte* out, std::size_t count, int bits) {
    std::size_t i = 0;
    if constexpr (sizeof(T) == 8)
        if (bits > 32 && bits < 64) {
            i = pack_wide(values, out, count, bits);
            out += i / 8 * bits;
        }
    if (bits < 32) {
        const u64 keep = low_bits(bits);
        const int pair = 2 * bits, odd = 4 * (bits & 1);
        const Byte* end = out + (count * bits + 7) / 8;  // the stores overshoot the group, never the buffer
        for (; i + 8 <= count && end - out >= bits / 2 + 16; i += 8, out += bits) {
            u64 word[4];
            for (int j = 0; j < 4; ++j) {
                const u64 first = values[i + 2 * j] & keep, second = values[i + 2 * j + 1] & keep;
                word[j] = first | second << bits;
            }
            const u64 low = word[0] | word[1] << pair, high = word[1] >> (64 - pair);
            write_word(out, low);
            write_word(out + 8, high);
            const Wide half = static_cast<Wide>(high) << 64 | low;
            const u64 rest = odd ? static_cast<u64>(half >> (4 * bits - 4)) & 15 : 0;
            const u64 low2 = word[2] | word[3] << pair, high2 = word[3] >> (64 - pair);
            write_word(out + bits / 2, low2 << odd | rest);
            write_word(out + bits / 2 + 8, high2 << odd | (odd ? low2 >> 60 : 0));
        }
    }
    pack_slowly(values + i, out, count - i, bits);
}

// What was packed, or its sum with `add`.
template <class T, bool SUM>
static void unpack_as(const Byte* buffer, std::size_t size, const T* add, T* out, std::size_t count, int bits) {
    const u64 keep = low_bits(bits);
    std::size_t i = 0;
    const Byte* from = buffer;
    const auto put = [&](std::size_t at, u64 value) {
        out[at] = static_cast<T>((SUM ? value + add[at] : value) & keep);
    };
    if (bits == 8 * static_cast<int>(sizeof(T)))
        for (; i < count; ++i, from += sizeof(T)) {
            T value;
            std::memcpy(&value, from, sizeof(T));
            put(i, value);
        }
    if (bits < 64) {
        int offset[8], shift[8];
        for (int j = 0; j < 8; ++j) offset[j] = j * bits / 8, shift[j] = j * bits % 8;
        const auto groups = [&](auto read) {
            for (; i + 8 <= count && from + bits + 8 <= buffer + size; i += 8, from += bits)
#pragma GCC unroll 8
                for (int j = 0; j < 8; ++j) put(i + j, read(from + offset[j], shift[j]));
        };
        if (bits <= 56)
            groups([](const Byte* at, int skip) { return read_word(at) >> skip; });
        else  // up to seven bits and 63 of the value: the last ones are in a ninth byte
            groups([](const Byte* at, int skip) { return read_word(at) >> skip | u64{at[8]} << 1 << (63 - skip); });
    }
    Wide pending = 0;
    int fill = 0;
    for (; i < count; ++i) {
        for (; fill < bits; fill += 8) pending |= static_cast<Wide>(*from++) << fill;
        put(i, static_cast<u64>(pending) & keep);
        pending >>= bits;
        fill -= bits;
    }
}

#define HDCOS_BY_SIZE(itemsize, call)                   \
    switch (itemsize) {                                 \
        case 1: { using T = std::uint8_t; call; break; }  \
        case 2: { using T = std::uint16_t; call; break; } \
        case 4: { using T = std::uint32_t; call; break; } \
        default: { using T = u64; call; }                 \
    }

void round_open(const u64* x, const void* mask, void* out, std::size_t itemsize, std::size_t count, int drop,
                int bits, bool ties_up) {
    HDCOS_BY_SIZE(itemsize, round_open_as(x, static_cast<const T*>(mask), static_cast<T*>(out), count, drop, bits,
                                          ties_up))
}

void pack(Compact values, Byte* out, std::size_t count, int bits) {
    HDCOS_BY_SIZE(values.itemsize, pack_as(static_cast<const T*>(values.data), out, count, bits))
}

void unpack(const Byte* buffer, std::size_t size, void* out, std::size_t itemsize, std::size_t count, int bits) {
    HDCOS_BY_SIZE(itemsize, (unpack_as<T, false>(buffer, size, nullptr, static_cast<T*>(out), count, bits)))
}

void unpack_sum(const Byte* buffer, std::size_t size, const void* values, void* out, std::size_t itemsize,
                std::size_t count, int bits) {
    HDCOS_BY_SIZE(itemsize, (unpack_as<T, true>(buffer, size, static_cast<const T*>(values), static_cast<T*>(out), count,
                                                bits)))
}

}  // namespace hdcos::HDCOS_ISA
