// Matrix products and convolutions: tiles of 64 x 64 results, 4 x 4 for each of 256 threads. Where there are few tiles
// the inner dimension is divided among blocks, which add up what they found: sums modulo 2**64 have no order.
constexpr int TILE = 64, DEPTH = 16, EACH = 4, SIDE = TILE / EACH;

template <class Left, class Right, class Store>
INLINE void multiply(i64 rows, i64 columns, i64 depth, i64 splits, i64 split, Left left, Right right, Store put) {
    __shared__ u64 a[DEPTH][TILE + 1], b[DEPTH][TILE + 1];
    const i64 top = static_cast<i64>(blockIdx.x) * TILE, side = static_cast<i64>(blockIdx.y) * TILE;
    const i64 steps = (depth + DEPTH - 1) / DEPTH, each = (steps + splits - 1) / splits;
    const i64 last = (split + 1) * each < steps ? (split + 1) * each : steps;
    const int thread = threadIdx.x, y = thread / SIDE, x = thread % SIDE;
    u64 sums[EACH][EACH] = {};
    for (i64 step = split * each; step < last; ++step) {
        const i64 from = step * DEPTH;
        for (int i = thread; i < DEPTH * TILE; i += SIDE * SIDE) {
            const int k = i % DEPTH, line = i / DEPTH;
            a[k][line] = top + line < rows && from + k < depth ? left(top + line, from + k) : 0;
        }
        for (int i = thread; i < DEPTH * TILE; i += SIDE * SIDE) {
            const int k = i / TILE, line = i % TILE;
            b[k][line] = side + line < columns && from + k < depth ? right(from + k, side + line) : 0;
        }
        __syncthreads();
        for (int k = 0; k < DEPTH; ++k) {
            u64 own[EACH], other[EACH];
            for (int i = 0; i < EACH; ++i) own[i] = a[k][y + i * SIDE];
            for (int j = 0; j < EACH; ++j) other[j] = b[k][x + j * SIDE];
            for (int i = 0; i < EACH; ++i)
                for (int j = 0; j < EACH; ++j) sums[i][j] += own[i] * other[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < EACH; ++i) {
        for (int j = 0; j < EACH; ++j) {
            const i64 row = top + y + i * SIDE, column = side + x + j * SIDE;
            if (row < rows && column < columns) {
                if (splits == 1) *put(row, column) = sums[i][j];
                else atomicAdd(put(row, column), sums[i][j]);
            }
        }
    }
}

// (rows, depth) times (depth, columns). With several splits `out` is zero at first.
KERNEL matmul(const u64* a, const u64* b, u64* out, i64 rows, i64 depth, i64 columns, i64 splits) {
    multiply(
        rows, columns, depth, splits, blockIdx.z, [=](i64 i, i64 k) { return a[i * depth + k]; },
        [=](i64 k, i64 j) { return b[k * columns + j]; }, [=](i64 i, i64 j) { return out + i * columns + j; });
}

// (n, channels, height, width) with (outputs, channels / groups, tall, wide): a row of the product is one window.
KERNEL conv2d(const u64* x, const u64* weight, u64* out, i64 n, i64 channels, i64 height, i64 width, i64 outputs,
              i64 tall, i64 wide, i64 out_height, i64 out_width, i64 stride, i64 padding, i64 groups, i64 dilation,
              i64 splits) {
    const i64 group = blockIdx.z / splits, split = blockIdx.z % splits;
    const i64 inputs = channels / groups, own = outputs / groups, window = tall * wide, places = out_height * out_width;
    const auto seen = [=](i64 row, i64 k) -> u64 {
        const auto [image, place] = divide(row, places);
        const auto [channel, at] = divide(k, window);
        const auto [i, j] = divide(place, out_width);
        const auto [u, v] = divide(at, wide);
        const i64 y = i * stride - padding + u * dilation, z = j * stride - padding + v * dilation;
        if (y < 0 || y >= height || z < 0 || z >= width) return 0;
        return x[((image * channels + group * inputs + channel) * height + y) * width + z];
    };
    multiply(
        n * places, own, inputs * window, splits, split, seen,
        [=](i64 k, i64 j) { return weight[(group * own + j) * inputs * window + k]; },
        [=](i64 row, i64 j) { return out + (row / places * outputs + group * own + j) * places + row % places; });
}
