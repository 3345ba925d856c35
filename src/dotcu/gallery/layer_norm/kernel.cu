// layer_norm: out = (x - mean) * rsqrt(variance + eps) * weight + bias, over rows of n elements.
//
//     x, out: (rows, n); weight, bias: (n); variance = mean((x - mean)^2)
//
// Idea: that of rms_norm. The squares need the mean, or another number close to the elements: each
// warp takes the mean of its first vectors, so that the row's threads synchronize only once
// (moments.cuh). `lanes` threads share a row: a part of a warp, a block, or a cluster along the
// grid's y. A longer row goes through the registers chunk by chunk, from the last to the first: the
// second pass starts with the chunk that is still in registers. `exact`: the threads hold exactly
// the rows. For short rows weight and bias are then loaded to shared memory together with the rows
// (`early`).
//
// Cost: 2 rows n elements moved, weight and bias from cache; 7 FLOPs an element.
// Source: Jimmy Lei Ba, Jamie Ryan Kiros, Geoffrey E. Hinton, "Layer Normalization", 2016.

#include <dotcu/row.cuh>
#include <dotcu/vector.cuh>

#include "moments.cuh"

template <int lanes>
constexpr int threads_of = lanes <= dotcu::warp_size ? 128 : lanes;  // short rows share a block

template <typename T, typename W, typename Sum, int width, int vectors, int lanes, bool exact>
__global__ void __launch_bounds__(threads_of<lanes>, 1024 / threads_of<lanes>)
    layer_norm(const T* __restrict__ x, const W* __restrict__ weight, const W* __restrict__ bias,
               T* __restrict__ out, long long rows, int n, Sum share, Sum eps) {
    constexpr int rows_of_block = threads_of<lanes> / lanes, stride = lanes * width;
    constexpr int group = lanes < dotcu::warp_size ? lanes : dotcu::warp_size;
    constexpr bool early = exact && vectors * lanes <= 128 && lanes <= dotcu::warp_size;
    __shared__ dotcu::vector<W, width> scales[early ? vectors * lanes : 1];
    __shared__ dotcu::vector<W, width> shifts[early ? vectors * lanes : 1];
    __shared__ Moments<Sum> of_warp[dotcu::max_cluster * dotcu::row_warps<lanes>];
    const long long row = blockIdx.x * static_cast<long long>(rows_of_block) + threadIdx.x / lanes;
    const int end = row < rows ? n : 0;  // a row beyond the last has no columns
    const int chunk = gridDim.y * vectors * stride;
    int at = blockIdx.y * vectors * stride + threadIdx.x % lanes * width;
    if constexpr (lanes > dotcu::warp_size) dotcu::cluster_arrive();
    x += row * n, out += row * n;

    dotcu::vector<T, width> part[vectors];
    const auto load = [&](int v, int i) { part[v] = dotcu::load<width>(x + i); };
    Moments<Sum> mine = {0, 0, 0, 0};
    const int me = threadIdx.x % lanes;
    dotcu::vector<W, width> scale, shift;
    if (early && threadIdx.x < vectors * lanes) {
        scale = dotcu::load<width>(weight + threadIdx.x * width);
        shift = dotcu::load<width>(bias + threadIdx.x * width);
    }
    if constexpr (!exact) at += (n - 1) / chunk * chunk;
    for (;; at -= chunk) {
        Sum sum = 0, seen = 0, count = 0;
        dotcu::each_vector<vectors, stride, exact>(at, end, load);
        dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int) {
            count += width;
            if (v > 0) return;  // the first vectors suffice for a pivot
            const auto value = dotcu::widen<Sum>(part[v]);
            for (int k = 0; k < width; ++k) sum += value[k];
            seen = width;
        });
        count = exact ? group * vectors * width : dotcu::reduce_warp<group>(count, dotcu::plus());
        seen = exact ? group * width : dotcu::reduce_warp<group>(seen, dotcu::plus());
        const Sum mean = dotcu::reduce_warp<group>(sum, dotcu::plus()) / max(seen, Sum(1));
        if (mine.count == 0) mine.pivot = mean;
        mine.count += count;
        dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int) {
            mine.include(dotcu::widen<Sum>(part[v]));
            if constexpr (vectors > 2) dotcu::repack(part[v]);
        });
        if (exact || at < chunk) break;
    }
    mine.offs = dotcu::reduce_warp<group>(mine.offs, dotcu::plus());
    mine.squares = dotcu::reduce_warp<group>(mine.squares, dotcu::plus());

    if (early && threadIdx.x < vectors * lanes)
        scales[threadIdx.x] = scale, shifts[threadIdx.x] = shift;
    if constexpr (early) __syncthreads();
    if constexpr (lanes > dotcu::warp_size) dotcu::cluster_wait();
    const auto all = join<lanes>(mine, of_warp, share);
    const Sum rest = all.offs * share;  // pivot + rest: the mean, with more digits than Sum has
    const Sum r = rsqrt(all.squares * share - rest * rest + eps);
    while (true) {
        dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int i) {
            if constexpr (early) {
                scale = scales[v * lanes + me], shift = shifts[v * lanes + me];
            } else {
                scale = dotcu::load<width>(weight + i), shift = dotcu::load<width>(bias + i);
            }
            const auto by = dotcu::widen<Sum>(scale), plus = dotcu::widen<Sum>(shift);
            auto value = dotcu::widen<Sum>(part[v]);
            for (int k = 0; k < width; ++k) {
                value[k] = ((value[k] - all.pivot) * r - rest * r) * by[k] + plus[k];
            }
            dotcu::store(out + i, dotcu::to<T>(value));
        });
        at += chunk;
        if (exact || at >= end) break;
        dotcu::each_vector<vectors, stride, exact>(at, end, load);
    }
}
