// AES-256 in counter mode: the words that seeds expand to, field by field. A block of the grid has its field's round
// keys and the table of one round in shared memory. Table look-ups take a time that depends on the key: who can
// time single accesses to this memory is on the device already, with the same rights.
constexpr int ROUNDS = 14;

INLINE u32 rotate_left(u32 x, int bits) { return x << bits | x >> (32 - bits); }
INLINE u32 doubled(u32 x) { return (x << 1) ^ (x & 0x80 ? 0x11B : 0); }

// The byte that AES puts for another one, from the table of a round; and those of a word.
INLINE u32 box(const u32* table, u32 x) { return table[x & 255] >> 8 & 255; }
INLINE u32 substituted(const u32* table, u32 x) {
    return box(table, x >> 24) << 24 | box(table, x >> 16) << 16 | box(table, x >> 8) << 8 | box(table, x);
}

// The 15 round keys of FIPS 197, as big-endian words.
INLINE void schedule(const u8* key, const u32* table, u32* rounds) {
    for (int i = 0; i < 8; ++i)
        rounds[i] = static_cast<u32>(key[4 * i]) << 24 | static_cast<u32>(key[4 * i + 1]) << 16 |
                    static_cast<u32>(key[4 * i + 2]) << 8 | key[4 * i + 3];
    u32 constant = 1;
    for (int i = 8; i < 4 * (ROUNDS + 1); ++i) {
        u32 word = rounds[i - 1];
        if (i % 8 == 0) {
            word = substituted(table, rotate_left(word, 8)) ^ constant << 24;
            constant = doubled(constant);
        } else if (i % 8 == 4) {
            word = substituted(table, word);
        }
        rounds[i] = rounds[i - 8] ^ word;
    }
}

// Six numbers for each field: where its key is, bytes of its stream for each execution, where it goes, values, bits and
// bytes of a value. Streams are read from execution start[0] on. blockIdx.y is the field.
KERNEL expand(const u8* keys, const u64* fields, const u64* start, u8* memory) {
    __shared__ u32 rounds[4 * (ROUNDS + 1)], table[256];
    const u64* field = fields + 6 * blockIdx.y;
    const u64 offset = field[1] * start[0], count = field[3], width = field[5], size = count * width;
    const u64 keep = low_bits(field[4]), blocks = size ? (offset + size - 1) / 16 - offset / 16 + 1 : 0;
    if (static_cast<u64>(blockIdx.x) * blockDim.x >= blocks) return;  // all threads of a block, or none
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        const u32 s = SBOX[i], twice = doubled(s);
        table[i] = twice << 24 | s << 16 | s << 8 | (twice ^ s);
    }
    __syncthreads();
    if (threadIdx.x == 0) schedule(keys + field[0], table, rounds);
    __syncthreads();
    u8* out = memory + field[2];
    for (u64 i = first_of_thread(); i < blocks; i += step_of_grid()) {
        const u64 number = offset / 16 + i;
        u32 state[4] = {rounds[0], rounds[1], static_cast<u32>(number >> 32) ^ rounds[2],
                        static_cast<u32>(number) ^ rounds[3]};
        for (int round = 1; round < ROUNDS; ++round) {
            u32 next[4];
            for (int c = 0; c < 4; ++c)
                next[c] = table[state[c] >> 24] ^ rotate_left(table[state[(c + 1) & 3] >> 16 & 255], 24) ^
                          rotate_left(table[state[(c + 2) & 3] >> 8 & 255], 16) ^
                          rotate_left(table[state[(c + 3) & 3] & 255], 8) ^ rounds[4 * round + c];
            for (int c = 0; c < 4; ++c) state[c] = next[c];
        }
        u32 made[4];
        for (int c = 0; c < 4; ++c) {
            const u32 word = box(table, state[c] >> 24) << 24 | box(table, state[(c + 1) & 3] >> 16) << 16 |
                             box(table, state[(c + 2) & 3] >> 8) << 8 | box(table, state[(c + 3) & 3]);
            const u32 whole = word ^ rounds[4 * ROUNDS + c];
            made[c] = whole << 24 | (whole << 8 & 0xFF0000) | (whole >> 8 & 0xFF00) | whole >> 24;
        }
        const u64 low = made[0] | static_cast<u64>(made[1]) << 32, high = made[2] | static_cast<u64>(made[3]) << 32;
        for (u64 byte = 0; byte < 16; byte += width) {
            const u64 at = 16 * number + byte;
            if (at >= offset && at < offset + size)
                store(out + (at - offset), width, 0, (byte < 8 ? low : high) >> (8 * (byte % 8)) & keep);
        }
    }
}
