// What every kernel starts with. Compiled at run time, without any header: `hdcos.ring.cuda` puts this, and the
// constants of `hdcos.ring.trig`, in front of each source. Every argument of a kernel is a word of 64 bits: a pointer
// or a number. All arithmetic is modulo 2**64 unless a name says that it is signed.
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

#define KERNEL extern "C" __global__ void
#define INLINE __device__ __forceinline__

// Values lie in the smallest unsigned type that holds them, of `width` bytes.
INLINE u64 load(const void* from, i64 width, i64 i) {
    if (width == 8) return static_cast<const u64*>(from)[i];
    if (width == 4) return static_cast<const u32*>(from)[i];
    if (width == 2) return static_cast<const u16*>(from)[i];
    return static_cast<const u8*>(from)[i];
}

INLINE void store(void* to, i64 width, i64 i, u64 value) {
    if (width == 8) static_cast<u64*>(to)[i] = value;
    else if (width == 4) static_cast<u32*>(to)[i] = static_cast<u32>(value);
    else if (width == 2) static_cast<u16*>(to)[i] = static_cast<u16>(value);
    else static_cast<u8*>(to)[i] = static_cast<u8>(value);
}

INLINE u64 low_bits(i64 bits) { return bits >= 64 ? ~0ULL : (1ULL << bits) - 1; }

// Quotient and rest of numbers that are not negative. Division of 64 bits takes a hundred instructions, so that of 32
// is taken where it can be; by powers of two there is none at all.
struct Divided {
    i64 whole, rest;
};

INLINE Divided divide(i64 x, i64 by) {
    if ((x | by) >> 32 == 0) {
        const u32 whole = static_cast<u32>(x) / static_cast<u32>(by);
        return {whole, static_cast<u32>(x) - whole * static_cast<u32>(by)};
    }
    return {x / by, x % by};
}

INLINE Divided divide_by_power(i64 x, i64 power) { return {x >> (63 - __clzll(power)), x & (power - 1)}; }

// The elements that this thread takes: first, first + step and so on.
INLINE i64 first_of_thread() { return static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; }
INLINE i64 step_of_grid() { return static_cast<i64>(gridDim.x) * blockDim.x; }

// x over 2**drop, rounded, plus the mask, modulo 2**bits: what an opening sends.
INLINE u64 opened(u64 x, u64 mask, i64 drop, i64 bits, i64 ties_up) {
    const u64 half = drop ? (1ULL << (drop - 1)) - (ties_up ? 0 : 1) : 0;
    return (((x + half) >> drop) + mask) & low_bits(bits);
}

// x as a signed number over 2**shift, ties up.
INLINE u64 rounded(u64 x, i64 shift) {
    return shift ? static_cast<u64>(static_cast<i64>(x + (1ULL << (shift - 1))) >> shift) : x;
}

struct Rotation {
    i64 cos, sin;
};

// 2**scale times cosine and sine of phase / 2**bits turns; see `ring.trig` for the two ways.
INLINE Rotation look_up(const int* table, u64 phase, i64 bits, i64 scale) {
    const i64 index = static_cast<i64>(phase & low_bits(bits));
    if (bits <= DIRECT_BITS) return {table[2 * index], table[2 * index + 1]};
    const i64 rest_bits = bits - HIGH_BITS, from_first = index + (1LL << (rest_bits - 1));
    const i64 row = (from_first >> rest_bits) & ((1LL << HIGH_BITS) - 1);
    const i64 angle = ((from_first & ((1LL << rest_bits) - 1)) - (1LL << (rest_bits - 1))) * (1LL << (MAX_BITS - bits));
    const i64 s = (angle * HALF_PI + (1LL << (HALF_PI_SCALE - 1))) >> HALF_PI_SCALE;
    const i64 c = (1LL << SPLIT_SCALE) - ((s * s + (1LL << SPLIT_SCALE)) >> (SPLIT_SCALE + 1));
    const i64 drop = 2 * SPLIT_SCALE - scale, half = 1LL << (drop - 1), cos = table[2 * row], sin = table[2 * row + 1];
    return {(cos * c - sin * s + half) >> drop, (sin * c + cos * s + half) >> drop};
}

// The first unit of a window, of pictures that are `pixels` wide.
INLINE i64 corner_of(i64 place, i64 height, i64 pixels, i64 window) {
    const auto [line, x] = divide(place, pixels / window);
    const auto [channel, y] = divide(line, height / window);
    return (channel * height + y * window) * pixels + x * window;
}

// A row of words in shared memory, transformed in place: SEGMENT words are one row, or several shorter ones.
constexpr int SEGMENT = 4096;

INLINE void transform_segment(u64* values, i64 size) {
    for (i64 half = 1; half < size; half *= 2) {
        __syncthreads();
        for (i64 pair = threadIdx.x; pair < SEGMENT / 2; pair += blockDim.x) {
            const i64 at = 2 * pair - (pair & (half - 1));
            const u64 low = values[at], high = values[at + half];
            values[at] = low + high;
            values[at + half] = low - high;
        }
    }
    __syncthreads();
}
