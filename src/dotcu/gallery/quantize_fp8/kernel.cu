// quantize_fp8: the rows of a matrix in float8 e4m3, each with its own scale.
//
//     scales[r] = max over c of |x[r][c]| / 448, or 1 where that is 0
//     values[r][c] = x[r][c] / scales[r], rounded to the nearest e4m3, ties to even, at most 448
//
// A NaN makes its whole row NaN; an infinity becomes NaN and makes all finite elements 0.
//
// Idea: `lanes` threads load a row, `vectors` times `width` elements each, and keep it in registers
// until they know its scale, so that it is read once. A long row is shared by a cluster of
// `blocks`; what exceeds all their registers is read twice. Absolute values are compared as
// integers, two of 16 bits at once; NaN is the largest. A quotient is a product with 1 / scale,
// corrected by its rest (Markstein, 1990): the e4m3 of the exact one, checked for each scale and x
// where rounding turns.
//
// Cost: each element is read once and written once, as one byte: bound by memory.
// Source: Micikevicius et al., "FP8 Formats for Deep Learning", 2022.

#include <dotcu/cluster.cuh>
#include <dotcu/tensor.cuh>
#include <dotcu/vector.cuh>

enum e4m3 : unsigned char {};

__device__ unsigned e4m3_of(float x) {
    const float size = fminf(fabsf(x), 448.0f);
    const unsigned sign = __float_as_uint(x) >> 24 & 0x80, bits = __float_as_uint(size);
    if (size < 0x1p-6f) return sign | (__float_as_uint(size + 0x1p14f) - __float_as_uint(0x1p14f));
    return sign | (((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3)) | (x != x);
}

__device__ unsigned short e4m3_of(float low, float high) {
    unsigned short both;
#if __CUDA_ARCH__ >= 890
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
#else
    both = e4m3_of(low) | e4m3_of(high) << 8;
#endif
    return both;
}

template <typename T, int width, int vectors, int lanes, int threads, int blocks>
__global__ void __launch_bounds__(threads)
    quantize_fp8(dotcu::tensor<const T, 2> rows, e4m3* values, float* scales) {
    __shared__ unsigned of_warp[dotcu::warp_size], of_block[dotcu::max_cluster];
    constexpr int step = width * lanes * blocks, half = sizeof(T) == 2;
    const int first = (blockIdx.x % blocks * lanes + threadIdx.x % lanes) * width;
    const long long row = 1ll * (blockIdx.x / blocks) * (threads / lanes) + threadIdx.x / lanes;
    const long long n = rows.size(1);
    const int last = min(n, 1ll * vectors * step) - width;  // of the elements in registers
    const T* x = rows.data + min(row, rows.size(0) - 1) * rows.stride(0);

    dotcu::vector<T, width> in[vectors];
#pragma unroll
    for (int v = 0; v < vectors; ++v) in[v] = dotcu::load<width>(x + min(first + v * step, last));
    if (blocks > 1) dotcu::cluster_sync();  // all blocks run
    unsigned most = 0;
    const auto larger = [](unsigned a, unsigned b) { return half ? __vmaxu2(a, b) : max(a, b); };
    const auto measure = [&](const dotcu::vector<T, width>& of) {
        unsigned words[(sizeof(of) + 3) / 4] = {};
        memcpy(words, &of, sizeof(of));
        for (unsigned word : words) most = larger(most, word & (half ? 0x7fff7fff : 0x7fffffff));
    };
#pragma unroll
    for (int v = 0; v < vectors; ++v) measure(in[v]);
#pragma unroll 1
    for (long long c = first + vectors * step; c < n; c += step) measure(dotcu::load<width>(x + c));
    if constexpr (lanes <= 32) most = dotcu::reduce_warp<lanes>(most, larger);
    if constexpr (lanes > 32) most = dotcu::reduce_block<lanes>(most, of_warp, larger);
    if constexpr (blocks > 1) most = dotcu::reduce_cluster(most, of_block, larger);
    if (half) most = max(most & 0xffff, most >> 16);
    if (row >= rows.size(0)) return;
    T largest;
    memcpy(&largest, &most, sizeof(T));
    const float quotient = static_cast<float>(largest) / 448, scale = quotient == 0 ? 1 : quotient;
    const float up = scale < 0x1p-90f ? 0x1p64f : 1, inverse = 1 / (scale * up);  // no subnormals
    const float divisor = inverse == 0 ? 0 : scale * up;  // x / infinity has no rest
    if (first == 0) scales[row] = scale;
    const auto quantize = [&](const dotcu::vector<T, width>& of, long long c, float up) {
        float y[width + 1] = {};
        for (int k = 0; k < width; ++k) {
            const float dividend = static_cast<float>(of[k]) * up, near = dividend * inverse;
            y[k] = fmaf(-fmaf(near, divisor, -dividend), inverse, near);
        }
        dotcu::vector<e4m3, width> value;
        for (int k = 0; k < width; k += 2) {
            const unsigned short both = e4m3_of(y[k], y[k + 1]);
            memcpy(&value[k], &both, width < 2 ? 1 : 2);
        }
        dotcu::store(values + row * n + c, value);
    };
    const int done = up == 1 ? vectors : 0;  // the others are read again
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        if (v < done && first + v * step <= last) quantize(in[v], first + v * step, 1);
    }
#pragma unroll 1
    for (long long c = first + done * step; c < n; c += step)
        quantize(dotcu::load<width>(x + c), c, up);
}
