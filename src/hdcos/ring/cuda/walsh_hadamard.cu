// The Walsh-Hadamard transform. Rows of up to SEGMENT words are transformed in shared memory, several short ones in one
// block; of longer rows the first levels are, and `walsh_level` does each of the others.
KERNEL walsh_hadamard(const u64* x, u64* out, i64 count, i64 size) {
    __shared__ u64 values[SEGMENT];
    const i64 start = static_cast<i64>(blockIdx.x) * SEGMENT;
    for (i64 i = threadIdx.x; i < SEGMENT; i += blockDim.x) values[i] = start + i < count ? x[start + i] : 0;
    transform_segment(values, size);
    for (i64 i = threadIdx.x; i < SEGMENT && start + i < count; i += blockDim.x) out[start + i] = values[i];
}

KERNEL walsh_level(u64* values, i64 count, i64 half) {
    for (i64 pair = first_of_thread(); pair < count / 2; pair += step_of_grid()) {
        const i64 at = 2 * pair - (pair & (half - 1));
        const u64 low = values[at], high = values[at + half];
        values[at] = low + high;
        values[at + half] = low - high;
    }
}
