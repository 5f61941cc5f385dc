// Openings, and values as they travel: `bits` bits each, in a little-endian bit stream.
KERNEL round_open(const u64* x, const void* mask, void* out, i64 count, i64 drop, i64 bits, i64 ties_up, i64 width) {
    for (i64 i = first_of_thread(); i < count; i += step_of_grid())
        store(out, width, i, opened(x[i], mask ? load(mask, width, i) : 0, drop, bits, ties_up));
}

// Each thread writes eight bytes, from all values that reach into them.
KERNEL pack(const void* values, u8* out, i64 count, i64 bits, i64 width, i64 size) {
    for (i64 word = first_of_thread(); 8 * word < size; word += step_of_grid()) {
        const i64 start = 64 * word, end = start + 64;
        u64 made = 0;
        for (i64 i = start / bits; i < count && i * bits < end; ++i) {
            const u64 value = load(values, width, i) & low_bits(bits);
            const i64 at = i * bits - start;
            made |= at >= 0 ? value << at : value >> -at;
        }
        for (i64 byte = 0; byte < 8 && 8 * word + byte < size; ++byte)
            out[8 * word + byte] = static_cast<u8>(made >> (8 * byte));
    }
}

INLINE u64 packed_value(const u8* buffer, i64 bits, i64 i) {
    const i64 from = i * bits, first = from / 8, last = (from + bits - 1) / 8, skip = from % 8;
    u64 value = buffer[first] >> skip;
    for (i64 byte = first + 1; byte <= last; ++byte) value |= static_cast<u64>(buffer[byte]) << (8 * (byte - first) - skip);
    return value & low_bits(bits);
}

// The packed values, or their sums with others modulo 2**bits.
KERNEL unpack(const u8* buffer, const void* others, void* out, i64 count, i64 bits, i64 width) {
    for (i64 i = first_of_thread(); i < count; i += step_of_grid()) {
        const u64 value = packed_value(buffer, bits, i);
        store(out, width, i, others ? (value + load(others, width, i)) & low_bits(bits) : value);
    }
}
