// AES-256 in counter mode: the words that seeds expand to, field by field.
constexpr int KEY_WORDS = 8;

// Six numbers for each field: where its key is, bytes of its stream for each execution, where it goes, values, bits and
// bytes of a value. Streams are read from execution start[0] on. blockIdx.y is the field.
KERNEL expand(const u8* keys, const u64* fields, const u64* start, u8* memory) {
    __shared__ u32 rounds[schedule_words(KEY_WORDS)], table[256];
    const u64* field = fields + 6 * blockIdx.y;
    const u64 offset = field[1] * start[0], count = field[3], width = field[5], size = count * width;
    const u64 keep = low_bits(field[4]), blocks = size ? (offset + size - 1) / 16 - offset / 16 + 1 : 0;
    if (static_cast<u64>(blockIdx.x) * blockDim.x >= blocks) return;  // all threads of a block, or none
    prepare<KEY_WORDS>(keys + field[0], table, rounds);
    u8* out = memory + field[2];
    for (u64 i = first_of_thread(); i < blocks; i += step_of_grid()) {
        const u64 number = offset / 16 + i;
        u32 state[4] = {0, 0, static_cast<u32>(number >> 32), static_cast<u32>(number)};
        encrypt<KEY_WORDS>(table, rounds, state);
        const u64 low = swapped(state[0]) | static_cast<u64>(swapped(state[1])) << 32;
        const u64 high = swapped(state[2]) | static_cast<u64>(swapped(state[3])) << 32;
        for (u64 byte = 0; byte < 16; byte += width) {
            const u64 at = 16 * number + byte;
            if (at >= offset && at < offset + size)
                store(out + (at - offset), width, 0, (byte < 8 ? low : high) >> (8 * (byte % 8)) & keep);
        }
    }
}
