// The convolutions of LeNet-5 for many models at once: conv 5x5 (1 -> 6, padding 2), activation, mean of 2x2,
// conv 5x5 (6 -> 16), activation, mean of 2x2, for rows that all models share.
//
// Libraries see 30 tiny convolutions and move every intermediate image through memory. Here a block takes a model
// and a few images and keeps everything between pixels and features in shared memory; the backward pass computes
// the first convolution again rather than reading it. Sums over images are left as one partial sum per block, which
// the caller adds up: results do not depend on the order in which blocks ran.
//
// Without nvcc the same file is C++: blocks then run one after another, with one thread each. Tests do that.

#ifdef __CUDACC__
#define SYNC __syncthreads()
#define PARALLEL(i, count) (int i = threadIdx.x; i < (count); i += blockDim.x)
#define KERNEL __global__ __launch_bounds__(BLOCK, 3)
#define SHARED extern __shared__ __align__(16) float shared[]
#else
#include <cmath>
#define KERNEL static
#define __device__ static inline
#define __restrict__ __restrict
#define SYNC
#define SHARED static float* const shared = arena
#define PARALLEL(i, count) (int i = 0; i < (count); ++i)
struct Index { int x, y; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
static Index blockIdx, gridDim;
alignas(16) static float arena[20480];
#endif

constexpr int BLOCK = 256;                                // threads
constexpr int SIDE = 28, PAD = 32, STEP = 36;             // an image; with its border of 2; from row to row
constexpr int C1 = 6, P1 = 14, C2 = 16, O2 = 10, P2 = 5;  // channels, pooled side; second output side, pooled side
constexpr int TAPS = 25, SLOT = 28;                       // a 5x5 kernel, and its room in shared memory
constexpr int W1 = C1 * TAPS, W2 = C2 * C1 * TAPS;        // parameters of a model: w1, b1, w2, b2
constexpr int PARAMETERS = W1 + C1 + W2 + C2;
constexpr int FEATURES = C2 * P2 * P2, Z2 = C2 * O2 * O2;
constexpr int GP = O2 + 8, STRIPS = 7;                    // gradient with a border of 4; strips of rows summed apart

// Shared memory. Rows and kernels start where two or four floats can be read at once.
constexpr int AT_P1 = PAD * STEP, AT_W1 = AT_P1 + C1 * P1 * P1, AT_W2 = AT_W1 + C1 * SLOT;
constexpr int AT_B1 = AT_W2 + C2 * C1 * SLOT, AT_B2 = AT_B1 + 8, FORWARD_FLOATS = AT_B2 + C2;
constexpr int AT_ONES = FORWARD_FLOATS, AT_G1 = AT_ONES + PAD, AT_G2 = AT_G1 + C1 * SIDE * SIDE;
constexpr int AT_SUM2 = AT_G2 + C2 * GP * GP, AT_SUM1 = AT_SUM2 + W2 + C2;
constexpr int BACKWARD_FLOATS = AT_SUM1 + STRIPS * (W1 + C1);

enum Activation { NONE, COS, SQUARE, EXPM1, POLYFIT3, RELU };

struct Cubic { float c0, c1, c2, c3; };

template <int A> __device__ float value(float z, Cubic c) {
    if (A == COS) return cosf(z);
    if (A == SQUARE) return z * z;
    if (A == EXPM1) return expm1f(z);
    if (A == POLYFIT3) return c.c0 + z * (c.c1 + z * (c.c2 + z * c.c3));
    if (A == RELU) return z < 0 ? 0.f : z;  // NaN stays NaN
    return z;
}

template <int A> __device__ float slope(float z, Cubic c) {
    if (A == COS) return -sinf(z);
    if (A == SQUARE) return 2 * z;
    if (A == EXPM1) return expf(z);
    if (A == POLYFIT3) return c.c1 + z * (2 * c.c2 + z * (3 * c.c3));
    if (A == RELU) return z > 0 ? 1.f : 0.f;
    return 1.f;
}

// 6x6 floats of an image, from a corner at an even column.
__device__ void read_patch(const float* corner, int step, float patch[36]) {
#pragma unroll
    for (int k = 0; k < 18; ++k) {
        const float2 two = *reinterpret_cast<const float2*>(corner + k / 3 * step + k % 3 * 2);
        patch[2 * k] = two.x, patch[2 * k + 1] = two.y;
    }
}

template <int COUNT> __device__ void read_fours(const float* from, float to[COUNT]) {
#pragma unroll
    for (int k = 0; k < COUNT; k += 4) {
        const float4 four = *reinterpret_cast<const float4*>(from + k);
        to[k] = four.x, to[k + 1] = four.y, to[k + 2] = four.z, to[k + 3] = four.w;
    }
}

// Adds the 2x2 results that a 5x5 kernel has on a patch; FLIPPED: the kernel turned by half a circle.
template <bool FLIPPED> __device__ void correlate(const float patch[36], const float* kernel, float sums[4]) {
    float w[SLOT];
    read_fours<SLOT>(kernel, w);
#pragma unroll
    for (int t = 0; t < TAPS; ++t) {
        const int tap = FLIPPED ? TAPS - 1 - t : t, at = t / 5 * 6 + t % 5;
        sums[0] += w[tap] * patch[at];
        sums[1] += w[tap] * patch[at + 1];
        sums[2] += w[tap] * patch[at + 6];
        sums[3] += w[tap] * patch[at + 7];
    }
}

__device__ void load_parameters(const float* __restrict__ from, float* shared) {
    for PARALLEL(i, PARAMETERS) {
        int to;
        if (i < W1) to = AT_W1 + i / TAPS * SLOT + i % TAPS;
        else if (i < W1 + C1) to = AT_B1 + i - W1;
        else if (i < W1 + C1 + W2) to = AT_W2 + (i - W1 - C1) / TAPS * SLOT + (i - W1 - C1) % TAPS;
        else to = AT_B2 + i - W1 - C1 - W2;
        shared[to] = from[i];
    }
}

__device__ void load_image(const float* __restrict__ image, float* x) {
    for PARALLEL(i, PAD * PAD) {
        const int row = i / PAD - 2, column = i % PAD - 2;
        const bool inside = row >= 0 && row < SIDE && column >= 0 && column < SIDE;
        x[i / PAD * STEP + i % PAD] = inside ? image[row * SIDE + column] : 0.f;
    }
}

// Pooled activations of the first convolution, and where wanted the slopes of its activation.
template <int A, bool SLOPES> __device__ void first(float* shared, Cubic cubic) {
    for PARALLEL(i, P1 * P1) {
        const int row = i / P1, column = i % P1;
        float patch[36], z[C1][4];
        read_patch(shared + 2 * row * STEP + 2 * column, STEP, patch);
#pragma unroll
        for (int c = 0; c < C1; ++c) {
            z[c][0] = z[c][1] = z[c][2] = z[c][3] = shared[AT_B1 + c];
            correlate<false>(patch, shared + AT_W1 + c * SLOT, z[c]);
        }
#pragma unroll
        for (int c = 0; c < C1; ++c) {
            float sum = 0;
#pragma unroll
            for (int k = 0; k < 4; k += 2) {
                sum += value<A>(z[c][k], cubic) + value<A>(z[c][k + 1], cubic);
                if (SLOPES)
                    *reinterpret_cast<float2*>(shared + AT_G1 + (c * SIDE + 2 * row + k / 2) * SIDE + 2 * column) =
                        float2{slope<A>(z[c][k], cubic), slope<A>(z[c][k + 1], cubic)};
            }
            shared[AT_P1 + (c * P1 + row) * P1 + column] = 0.25f * sum;
        }
    }
}

template <int A>
KERNEL void forward(const float* __restrict__ images, const float* __restrict__ parameters, long stride, int rows,
                    int images_per_block, Cubic cubic, float* __restrict__ features, float* __restrict__ z2) {
    SHARED;
    const int model = blockIdx.y;
    load_parameters(parameters + model * stride, shared);
    for (int n = 0; n < images_per_block; ++n) {
        const int row = blockIdx.x * images_per_block + n;
        if (row >= rows) break;
        const long at = (long)model * rows + row;
        SYNC;
        load_image(images + (long)row * SIDE * SIDE, shared);
        SYNC;
        first<A, false>(shared, cubic);
        SYNC;
        for PARALLEL(i, C2 / 2 * P2 * P2) {  // two channels at one pooled position
            const int y = i % (P2 * P2) / P2, column = i % P2, c = i / (P2 * P2) * 2;
            float z[2][4];
#pragma unroll
            for (int k = 0; k < 4; ++k) z[0][k] = shared[AT_B2 + c], z[1][k] = shared[AT_B2 + c + 1];
            for (int in = 0; in < C1; ++in) {
                float patch[36];
                read_patch(shared + AT_P1 + (in * P1 + 2 * y) * P1 + 2 * column, P1, patch);
                correlate<false>(patch, shared + AT_W2 + (c * C1 + in) * SLOT, z[0]);
                correlate<false>(patch, shared + AT_W2 + ((c + 1) * C1 + in) * SLOT, z[1]);
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float sum = 0;
#pragma unroll
                for (int k = 0; k < 4; k += 2) {
                    sum += value<A>(z[half][k], cubic) + value<A>(z[half][k + 1], cubic);
                    *reinterpret_cast<float2*>(z2 + at * Z2 + ((c + half) * O2 + 2 * y + k / 2) * O2 + 2 * column) =
                        float2{z[half][k], z[half][k + 1]};
                }
                features[at * FEATURES + (c + half) * P2 * P2 + y * P2 + column] = 0.25f * sum;
            }
        }
    }
}

// Second kernels: of two output channels and one input channel, a row of 5 taps. Lane 30 reads ones: the biases.
__device__ void second_gradient(float* shared) {
    for PARALLEL(i, C2 / 2 * 32) {
        const int c = i / 32 * 2, lane = i % 32;
        if (lane > 30) continue;
        const int in = lane / 5, tap = lane % 5;
        const float* a = lane < 30 ? shared + AT_P1 + (in * P1 + tap) * P1 : shared + AT_ONES;
        const float* g = shared + AT_G2 + (c * GP + 4) * GP + 4;
        float sums[2][5] = {{0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}};
        for (int y = 0; y < O2; ++y) {
            float inputs[P1];
#pragma unroll
            for (int k = 0; k < P1; k += 2) {
                const float2 two = *reinterpret_cast<const float2*>(a + k);
                inputs[k] = two.x, inputs[k + 1] = two.y;
            }
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int column = 0; column < O2; column += 2) {
                    const float2 two = *reinterpret_cast<const float2*>(g + half * GP * GP + column);
#pragma unroll
                    for (int k = 0; k < 5; ++k)
                        sums[half][k] += two.x * inputs[column + k] + two.y * inputs[column + 1 + k];
                }
            a += lane < 30 ? P1 : 0;
            g += GP;
        }
        for (int half = 0; half < 2; ++half) {
            float* to = shared + AT_SUM2 + ((c + half) * C1 + in) * TAPS + 5 * tap;
            if (lane < 30)
                for (int k = 0; k < 5; ++k) to[k] += sums[half][k];
            else
                shared[AT_SUM2 + W2 + c + half] += sums[half][0];
        }
    }
}

// Gradient at 2x2 pooled inputs of two channels; times the slopes there, that at the first convolution's outputs.
__device__ void input_gradient(float* shared) {
    for PARALLEL(i, C1 / 2 * 49) {
        const int y = i % 49 / 7, column = i % 7, in = i / 49 * 2;
        float sums[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
        for (int c = 0; c < C2; ++c) {
            float patch[36];
            read_patch(shared + AT_G2 + (c * GP + 2 * y) * GP + 2 * column, GP, patch);
            correlate<true>(patch, shared + AT_W2 + (c * C1 + in) * SLOT, sums[0]);
            correlate<true>(patch, shared + AT_W2 + (c * C1 + in + 1) * SLOT, sums[1]);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int down = 0; down < 4; ++down) {
                float4& four = *reinterpret_cast<float4*>(
                    shared + AT_G1 + ((in + half) * SIDE + 4 * y + down) * SIDE + 4 * column);
                const float left = 0.25f * sums[half][down / 2 * 2], right = 0.25f * sums[half][down / 2 * 2 + 1];
                four = float4{four.x * left, four.y * left, four.z * right, four.w * right};
            }
    }
}

// First kernels: a row of 5 taps, over a strip of 4 rows of the image. Row 5 reads ones: the biases.
__device__ void first_gradient(float* shared) {
    for PARALLEL(i, C1 * 6 * STRIPS) {
        const int c = i % C1, tap = i / C1 % 6, strip = i / (C1 * 6);
        float sum[5] = {0, 0, 0, 0, 0};
        for (int y = 4 * strip; y < 4 * strip + 4; ++y) {
            const float *g = shared + AT_G1 + (c * SIDE + y) * SIDE, *a = shared + (tap < 5 ? (y + tap) * STEP : AT_ONES);
            float window[8], here[4];
            read_fours<4>(a, window + 4);
#pragma unroll
            for (int column = 0; column < SIDE; column += 4) {
#pragma unroll
                for (int k = 0; k < 4; ++k) window[k] = window[k + 4];
                read_fours<4>(a + column + 4, window + 4);
                read_fours<4>(g + column, here);
#pragma unroll
                for (int j = 0; j < 4; ++j)
#pragma unroll
                    for (int k = 0; k < 5; ++k) sum[k] += here[j] * window[j + k];
            }
        }
        float* to = shared + AT_SUM1 + strip * (W1 + C1);
        if (tap < 5)
            for (int k = 0; k < 5; ++k) to[c * TAPS + 5 * tap + k] += sum[k];
        else
            to[W1 + c] += sum[0];
    }
}

template <int A>
KERNEL void backward(const float* __restrict__ images, const float* __restrict__ parameters, long stride, int rows,
                     int images_per_block, Cubic cubic, const float* __restrict__ z2,
                     const float* __restrict__ gradient, float* __restrict__ partial) {
    SHARED;
    const int model = blockIdx.y;
    load_parameters(parameters + model * stride, shared);
    for PARALLEL(i, PAD) shared[AT_ONES + i] = 1;
    for PARALLEL(i, BACKWARD_FLOATS - AT_G2) shared[AT_G2 + i] = 0;
    for (int n = 0; n < images_per_block; ++n) {
        const int row = blockIdx.x * images_per_block + n;
        if (row >= rows) break;
        const long at = (long)model * rows + row;
        SYNC;
        load_image(images + (long)row * SIDE * SIDE, shared);
        for PARALLEL(i, Z2) {  // gradient at the second convolution's outputs
            const int c = i / (O2 * O2), y = i / O2 % O2, column = i % O2;
            const float g = gradient[at * FEATURES + (c * P2 + y / 2) * P2 + column / 2];
            shared[AT_G2 + (c * GP + y + 4) * GP + column + 4] = 0.25f * g * slope<A>(z2[at * Z2 + i], cubic);
        }
        SYNC;
        first<A, true>(shared, cubic);
        SYNC;
        second_gradient(shared);
        input_gradient(shared);
        SYNC;
        first_gradient(shared);
    }
    SYNC;
    float* out = partial + ((long)model * gridDim.x + blockIdx.x) * PARAMETERS;
    for PARALLEL(i, W1 + C1) {
        float sum = 0;
        for (int strip = 0; strip < STRIPS; ++strip) sum += shared[AT_SUM1 + strip * (W1 + C1) + i];
        out[i] = sum;
    }
    for PARALLEL(i, W2 + C2) out[W1 + C1 + i] = shared[AT_SUM2 + i];
}

// Launchers, called by address from Python; they return the error of the launch, 0 for none.

#ifdef __CUDACC__
#define LAUNCH(kernel, floats, ...)                                                                              \
    {                                                                                                            \
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (floats) * (int)sizeof(float)); \
        kernel<<<dim3(blocks, models), BLOCK, (floats) * sizeof(float), (cudaStream_t)stream>>>(__VA_ARGS__);    \
        return cudaGetLastError();                                                                               \
    }
#else
#define LAUNCH(kernel, floats, ...)                                           \
    {                                                                         \
        gridDim = {blocks, models};                                           \
        for (blockIdx.y = 0; blockIdx.y < models; ++blockIdx.y)               \
            for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) kernel(__VA_ARGS__); \
        return 0;                                                             \
    }
#endif
#define FOR_ACTIVATION(kernel, ...)                            \
    switch (activation) {                                      \
        case NONE: LAUNCH(kernel<NONE>, __VA_ARGS__)           \
        case COS: LAUNCH(kernel<COS>, __VA_ARGS__)             \
        case SQUARE: LAUNCH(kernel<SQUARE>, __VA_ARGS__)       \
        case EXPM1: LAUNCH(kernel<EXPM1>, __VA_ARGS__)         \
        case POLYFIT3: LAUNCH(kernel<POLYFIT3>, __VA_ARGS__)   \
        case RELU: LAUNCH(kernel<RELU>, __VA_ARGS__)           \
    }                                                          \
    return -1;

extern "C" int lenet_forward(int activation, int models, int rows, int images_per_block, long stride, const float* cubic,
                             const float* images, const float* parameters, float* features, float* z2, void* stream) {
    const int blocks = (rows + images_per_block - 1) / images_per_block;
    const Cubic c = {cubic[0], cubic[1], cubic[2], cubic[3]};
    FOR_ACTIVATION(forward, FORWARD_FLOATS, images, parameters, stride, rows, images_per_block, c, features, z2)
}

extern "C" int lenet_backward(int activation, int models, int rows, int images_per_block, long stride, const float* cubic,
                              const float* images, const float* parameters, const float* z2, const float* gradient,
                              float* partial, void* stream) {
    const int blocks = (rows + images_per_block - 1) / images_per_block;
    const Cubic c = {cubic[0], cubic[1], cubic[2], cubic[3]};
    FOR_ACTIVATION(backward, BACKWARD_FLOATS, images, parameters, stride, rows, images_per_block, c, z2, gradient, partial)
}
