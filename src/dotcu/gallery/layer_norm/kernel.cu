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

#include "moments.cuh"

template <typename T, dotcu::row_way way, typename W, typename Sum, int width, int vectors,
          int lanes, bool exact>
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
    const int chunk = gridDim.y * vectors * stride, me = threadIdx.x % lanes;
    if constexpr (lanes > dotcu::warp_size) dotcu::cluster_arrive();
    x += row * n, out += row * n;
    // A row beyond the last has no columns.
    const dotcu::row_split<way, width> split(row < rows ? n : 0, out, x);
    const int begin = split.first, end = split.inner;

    dotcu::vector<T, width> part[vectors];
    dotcu::vector<T, 1> edge[split.template edges_of_thread<lanes> + 1];
    const auto load = [&](int at) {
#pragma unroll
        for (int v = 0, i = at; v < vectors; ++v, i += stride) {
            part[v] = split.load(exact || i < end, x + begin + i, 0, static_cast<T>(0));
        }
    };
    Moments<Sum> mine = {0, 0, 0, 0};
    dotcu::vector<W, width> scale, shift;
    if (early && threadIdx.x < vectors * lanes) {
        scale = dotcu::load<width>(weight + threadIdx.x * width);
        shift = dotcu::load<width>(bias + threadIdx.x * width);
    }
    int at = blockIdx.y * vectors * stride + me * width;
    if constexpr (!exact) at += max(end - 1, 0) / chunk * chunk;
    for (;; at -= chunk) {
        load(at);
        mine.template include_part<group, stride, exact>(part, at, end);
        if (exact || at < chunk) break;
    }
    if (way != dotcu::aligned && blockIdx.y == 0) {
        Sum count = 0;
        split.template each_edge<lanes>(me, [&](int k, int i) {
            edge[k][0] = x[i], ++count;
            mine.include(dotcu::widen<Sum>(edge[k]));
        });
        mine.count += dotcu::reduce_warp<group>(count, dotcu::plus());
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
            } else if constexpr (way == dotcu::aligned) {
                scale = dotcu::load<width>(weight + i), shift = dotcu::load<width>(bias + i);
            } else {
                scale = dotcu::load_shifted<width>(weight, begin + i, n);
                shift = dotcu::load_shifted<width>(bias, begin + i, n);
            }
            dotcu::store(out + begin + i, normalized(part[v], all.pivot, rest, r, scale, shift));
        });
        at += chunk;
        if (exact || at >= end) break;
        load(at);
    }
    if (blockIdx.y == 0) {
        split.template each_edge<lanes>(me, [&](int k, int i) {
            const auto by = dotcu::load<1>(weight + i), plus = dotcu::load<1>(bias + i);
            dotcu::store(out + i, normalized(edge[k], all.pivot, rest, r, by, plus));
        });
    }
}
