// The sign of an opened value by one-time truth tables, and by distributed comparison functions. The specification, and
// why it is right, is `ring.reference_sign`. Memory is indexed by public numbers, except in AES.
constexpr int KEY_WORDS = 4, MOST_BLOCKS = 5, LEAF_BITS = 7;

// Up to five tables, the highest block first; byte j of `widths` is how many bits block j has. Bit x of a table is
// [x < block], and the bit before the first is 1, which the party has that adds what is public.
KERNEL sign_lookup(const void* D, i64 D_width, const void* table0, const void* table1, const void* table2,
                   const void* table3, const void* table4, const u8* masks, u8* first, u8* asked, i64 count, i64 bits,
                   u64 widths, i64 blocks, u64 with_public) {
    const void* const tables[MOST_BLOCKS] = {table0, table1, table2, table3, table4};
    for (i64 i = first_of_thread(); i < count; i += step_of_grid()) {
        const u64 d = load(D, D_width, i);
        u64 own = with_public & (~d >> (bits - 1)), word = masks[i];
        i64 left = bits - 1;
        for (int block = 0; block < MOST_BLOCKS; ++block) {
            if (block >= blocks) break;
            const i64 width = widths >> (8 * block) & 255;
            left -= width;
            const u64 x = d >> left & low_bits(width);
            const u64 table = load(tables[block], width > 3 ? 1LL << (width - 3) : 1, i);
            const u64 below = table >> x & 1, equal = below ^ ((table << 1 | with_public) >> x & 1);
            if (block) word ^= below << (2 * block - 1);
            else own ^= below;
            if (block + 1 < blocks) word ^= equal << (2 * block);
        }
        first[i] = static_cast<u8>(own & 1);
        asked[i] = static_cast<u8>(word);
    }
}

KERNEL sign_combine(const u8* opened, const u8* masks, const void* products, i64 width, const u8* first,
                    const u64* rules, u8* out, i64 count, i64 mask_bits, u64 with_public) {
    for (i64 i = first_of_thread(); i < count; i += step_of_grid()) {
        u64 word = masks[i] | load(products, width, i) << mask_bits | with_public << 63;
        word &= rules[opened[i]];
        for (int shift = 32; shift; shift /= 2) word ^= word >> shift;
        out[i] = first[i] ^ static_cast<u8>(word & 1);
    }
}

struct Node {
    u64 low, high;
};

INLINE Node operator^(Node a, Node b) { return {a.low ^ b.low, a.high ^ b.high}; }
INLINE Node where(u64 bit, Node a) { return {(0 - bit) & a.low, (0 - bit) & a.high}; }
INLINE Node chosen(u64 right, Node a, Node b) { return where(1 - right, a) ^ where(right, b); }
INLINE Node seed_of(Node x) { return {x.low & ~7ULL, x.high}; }
INLINE Node node_at(const u64* words, i64 i) { return {words[2 * i], words[2 * i + 1]}; }
INLINE u64 value_of(Node x) { return x.low >> 1 & 1; }

// P(x) ^ x with x the seed and a side, or 2 for the leaves, in its lowest bits.
INLINE Node hashed(const u32* table, const u32* rounds, Node seed, u64 side) {
    const u64 low = seed.low | side, high = seed.high;
    u32 state[4] = {swapped(static_cast<u32>(low)), swapped(static_cast<u32>(low >> 32)),
                    swapped(static_cast<u32>(high)), swapped(static_cast<u32>(high >> 32))};
    encrypt<KEY_WORDS>(table, rounds, state);
    return {(swapped(state[0]) | static_cast<u64>(swapped(state[1])) << 32) ^ low,
            (swapped(state[2]) | static_cast<u64>(swapped(state[3])) << 32) ^ high};
}

INLINE i64 levels_of(i64 bits) { return bits - 1 > LEAF_BITS ? bits - 1 - LEAF_BITS : 0; }
INLINE u64 leaf_of(u64 x, i64 bits) { return x & low_bits(bits - 1 < LEAF_BITS ? bits - 1 : LEAF_BITS); }

// blockIdx.x is a row of values, with a key of AES of its own; blockIdx.y takes some of its `each` values.
KERNEL dcf_words(i64 each, const u8* cipher, const u64* root0, const u64* root1, const void* mask, i64 width,
                 u64* words, i64 bits) {
    __shared__ u32 rounds[schedule_words(KEY_WORDS)], table[256];
    prepare<KEY_WORDS>(cipher + 16 * blockIdx.x, table, rounds);
    const i64 depth = levels_of(bits), step = static_cast<i64>(gridDim.y) * blockDim.x;
    for (i64 i = static_cast<i64>(blockIdx.y) * blockDim.x + threadIdx.x; i < each; i += step) {
        const i64 at = blockIdx.x * each + i;
        const u64 point = load(mask, width, at), top = point >> (bits - 1) & 1;
        u64* word = words + 2 * at * (depth + 1);
        Node seed[2] = {seed_of(node_at(root0, at)), seed_of(node_at(root1, at))};
        u64 t[2] = {0, 1}, value = 0;
        for (i64 level = 0; level < depth; ++level, word += 2) {
            const u64 a = point >> (bits - 2 - level) & 1;
            Node left[2], right[2];
            for (int party = 0; party < 2; ++party) {
                left[party] = hashed(table, rounds, seed[party], 0);
                right[party] = hashed(table, rounds, seed[party], 1);
            }
            const Node lost = chosen(a, right[0] ^ right[1], left[0] ^ left[1]);
            const u64 left_t = (left[0].low ^ left[1].low ^ a ^ 1) & 1, right_t = (right[0].low ^ right[1].low ^ a) & 1;
            const u64 value_word = value_of(lost) ^ value ^ top ^ a, kept_t = (left_t & (a ^ 1)) | (right_t & a);
            const Node correction = seed_of(lost);
            word[0] = correction.low | left_t | right_t << 1 | value_word << 2;
            word[1] = correction.high;
            value ^= value_word;
            for (int party = 0; party < 2; ++party) {
                const Node kept = chosen(a, left[party], right[party]);
                value ^= value_of(kept);
                seed[party] = seed_of(kept) ^ where(t[party], correction);
                t[party] = (kept.low & 1) ^ (t[party] & kept_t);
            }
        }
        const Node leaves = hashed(table, rounds, seed[0], 2) ^ hashed(table, rounds, seed[1], 2);
        // Ones below the point, all of them turned where the path has the other value.
        const u64 place = leaf_of(point, bits), upper = 0 - (place >> 6), part = (1ULL << (place & 63)) - 1;
        const u64 turn = 0 - (value ^ top);
        word[0] = leaves.low ^ (part | upper) ^ turn;
        word[1] = leaves.high ^ (part & upper) ^ turn;
    }
}

KERNEL dcf_share(i64 each, const u8* cipher, const u64* root, const u64* words, const void* D, i64 width, u8* out,
                 i64 bits, u64 with_public) {
    __shared__ u32 rounds[schedule_words(KEY_WORDS)], table[256];
    prepare<KEY_WORDS>(cipher + 16 * blockIdx.x, table, rounds);
    const i64 depth = levels_of(bits), step = static_cast<i64>(gridDim.y) * blockDim.x;
    for (i64 i = static_cast<i64>(blockIdx.y) * blockDim.x + threadIdx.x; i < each; i += step) {
        const i64 at = blockIdx.x * each + i;
        const u64 x = load(D, width, at);
        const u64* word = words + 2 * at * (depth + 1);
        Node seed = seed_of(node_at(root, at));
        u64 t = 1 - with_public, value = with_public & ~(x >> (bits - 1));
        for (i64 level = 0; level < depth; ++level) {
            const u64 side = x >> (bits - 2 - level) & 1;
            const Node node = hashed(table, rounds, seed, side), correction = node_at(word, level);
            value ^= value_of(node) ^ (t & correction.low >> 2);
            seed = seed_of(node ^ where(t, correction));
            t = (node.low ^ (t & correction.low >> side)) & 1;
        }
        const Node leaves = hashed(table, rounds, seed, 2) ^ where(t, node_at(word, depth));
        const u64 place = leaf_of(x, bits), half = place >> 6 ? leaves.high : leaves.low;
        out[at] = static_cast<u8>((value ^ half >> (place & 63)) & 1);
    }
}
