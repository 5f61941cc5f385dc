// AES of FIPS 197 with keys of 4 or 8 words (AES-128, AES-256). A block of the grid has its round keys and the table of
// one round in shared memory. Table look-ups take a time that depends on keys and blocks: who can time single accesses
// to this memory is on the device already, with the same rights.
constexpr int rounds_of(int key_words) { return key_words + 6; }
constexpr int schedule_words(int key_words) { return 4 * (rounds_of(key_words) + 1); }

INLINE u32 rotate_left(u32 x, int bits) { return x << bits | x >> (32 - bits); }
INLINE u32 doubled(u32 x) { return (x << 1) ^ (x & 0x80 ? 0x11B : 0); }
INLINE u32 swapped(u32 x) { return x << 24 | (x << 8 & 0xFF0000) | (x >> 8 & 0xFF00) | x >> 24; }

// The byte that AES puts for another one, from the table of a round; and those of a word.
INLINE u32 box(const u32* table, u32 x) { return table[x & 255] >> 8 & 255; }
INLINE u32 substituted(const u32* table, u32 x) {
    return box(table, x >> 24) << 24 | box(table, x >> 16) << 16 | box(table, x >> 8) << 8 | box(table, x);
}

// The round keys, as big-endian words.
template <int KEY_WORDS>
INLINE void schedule(const u8* key, const u32* table, u32* rounds) {
    for (int i = 0; i < KEY_WORDS; ++i)
        rounds[i] = static_cast<u32>(key[4 * i]) << 24 | static_cast<u32>(key[4 * i + 1]) << 16 |
                    static_cast<u32>(key[4 * i + 2]) << 8 | key[4 * i + 3];
    u32 constant = 1;
    for (int i = KEY_WORDS; i < schedule_words(KEY_WORDS); ++i) {
        u32 word = rounds[i - 1];
        if (i % KEY_WORDS == 0) {
            word = substituted(table, rotate_left(word, 8)) ^ constant << 24;
            constant = doubled(constant);
        } else if (KEY_WORDS > 6 && i % KEY_WORDS == 4) {
            word = substituted(table, word);
        }
        rounds[i] = rounds[i - KEY_WORDS] ^ word;
    }
}

// Both, by all threads of a block together.
template <int KEY_WORDS>
INLINE void prepare(const u8* key, u32* table, u32* rounds) {
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        const u32 s = SBOX[i], twice = doubled(s);
        table[i] = twice << 24 | s << 16 | s << 8 | (twice ^ s);
    }
    __syncthreads();
    if (threadIdx.x == 0) schedule<KEY_WORDS>(key, table, rounds);
    __syncthreads();
}

// A block of four big-endian words, in place.
template <int KEY_WORDS>
INLINE void encrypt(const u32* table, const u32* rounds, u32* state) {
    for (int c = 0; c < 4; ++c) state[c] ^= rounds[c];
    for (int round = 1; round < rounds_of(KEY_WORDS); ++round) {
        u32 next[4];
        for (int c = 0; c < 4; ++c)
            next[c] = table[state[c] >> 24] ^ rotate_left(table[state[(c + 1) & 3] >> 16 & 255], 24) ^
                      rotate_left(table[state[(c + 2) & 3] >> 8 & 255], 16) ^
                      rotate_left(table[state[(c + 3) & 3] & 255], 8) ^ rounds[4 * round + c];
        for (int c = 0; c < 4; ++c) state[c] = next[c];
    }
    u32 made[4];
    for (int c = 0; c < 4; ++c)
        made[c] = (box(table, state[c] >> 24) << 24 | box(table, state[(c + 1) & 3] >> 16) << 16 |
                   box(table, state[(c + 2) & 3] >> 8) << 8 | box(table, state[(c + 3) & 3])) ^
                  rounds[4 * rounds_of(KEY_WORDS) + c];
    for (int c = 0; c < 4; ++c) state[c] = made[c];
}
