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
// integers, two of 16 bits at once; NaN is the largest. A row that begins anywhere has the vectors
// of its values, and edges (dotcu/row.cuh). A quotient is a product with 1 / scale,
// corrected by its rest (Markstein, 1990): the e4m3 of the exact one, checked for each scale and x
// where rounding turns.
//
// Cost: each element is read once and written once, as one byte: bound by memory.
// Source: Micikevicius et al., "FP8 Formats for Deep Learning", 2022.

#include <dotcu/row.cuh>
#include <dotcu/tensor.cuh>
#include "e4m3.cuh"

template <typename T, dotcu::row_way way, int width, int vectors, int lanes, int threads,
          int blocks>
__global__ void __launch_bounds__(threads)
    quantize_fp8(dotcu::tensor<const T, 2> rows, e4m3* values, float* scales) {
    __shared__ unsigned of_warp[dotcu::warp_size], of_block[dotcu::max_cluster];
    constexpr int step = width * lanes * blocks;
    const int me = blockIdx.x % blocks * lanes + threadIdx.x % lanes;
    const long long row = 1ll * (blockIdx.x / blocks) * (threads / lanes) + threadIdx.x / lanes;
    const long long n = rows.size(1), here = min(row, rows.size(0) - 1);
    const T *x = rows.data + here * rows.stride(0), *alike = nullptr;
    alike += here * n + reinterpret_cast<size_t>(values) % 16;  // elements lie as those of values
    const dotcu::row_split<way, width, 1, long long> split(n, alike, x);
    const int first = me * width, last = min(split.inner, 1ll * vectors * step) - width;
    const auto load = [&](long long c) { return split.load(true, x + split.first + c, 0, T(0.f)); };

    dotcu::vector<T, width> in[vectors];
#pragma unroll
    for (int v = 0; v < vectors; ++v) in[v] = load(min(first + v * step, last));
    dotcu::vector<T, 1> edge[split.template edges_of_thread<lanes * blocks> + 1] = {};
    split.template each_edge<lanes * blocks>(me, [&](int k, long long i) { edge[k][0] = x[i]; });
    if (blocks > 1) dotcu::cluster_sync();  // all blocks run
    const Larger<T> larger;
    unsigned most = 0;
#pragma unroll
    for (int v = 0; v < vectors; ++v) most = larger(most, in[v]);
    for (const auto& one : edge) most = larger(most, one);
#pragma unroll 1
    for (long long c = first + vectors * step; c < split.inner; c += step)
        most = larger(most, load(c));
    if constexpr (lanes <= 32) most = dotcu::reduce_warp<lanes>(most, larger);
    if constexpr (lanes > 32) most = dotcu::reduce_block<lanes>(most, of_warp, larger);
    if constexpr (blocks > 1) most = dotcu::reduce_cluster(most, of_block, larger);
    if (larger.half) most = max(most & 0xffff, most >> 16);
    if (row >= rows.size(0)) return;
    T largest;
    memcpy(&largest, &most, sizeof(T));
    const Scale scale(static_cast<float>(largest));
    if (me == 0) scales[row] = scale.value;
    values += row * n;
    const int done = scale.up == 1 ? vectors : 0;  // the others are read again
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        const int c = first + v * step;
        if (v < done && c <= last) scale.quantize(in[v], 1, values + split.first + c);
    }
#pragma unroll 1
    for (long long c = first + done * step; c < split.inner; c += step)
        scale.quantize(load(c), scale.up, values + split.first + c);
    split.template each_edge<lanes * blocks>(
        me, [&](int k, long long i) { scale.quantize(edge[k], scale.up, values + i); });
}
