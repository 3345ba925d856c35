// rms_norm: out = x * rsqrt(mean(x^2) + eps) * weight, over rows of n elements.
//
//     adds = false    x, out: (rows, n); weight: (n)
//     adds = true     first sum = x + residual, rounded to T; then the same of sum
//
// Idea: read a row once and keep it in registers until its mean is known. `lanes` threads share a
// row: a part of a warp for short rows, a block for long ones, and a cluster, along the grid's y,
// for rows that no block can hold. Each thread has several vectors of 16 bytes in flight. A longer
// row goes through the registers chunk by chunk, from the last to the first: the second pass starts
// with the chunk that is still in registers. `exact`: the threads hold exactly the rows. For short
// rows weight is then loaded to shared memory together with the rows (`early`).
//
// Cost: 2 rows n elements moved (4 with a residual), weight from cache; 4 FLOPs an element.
// Source: Biao Zhang, Rico Sennrich, "Root Mean Square Layer Normalization", 2019.

#include <dotcu/row.cuh>

#include "vectors.cuh"

template <typename T, dotcu::row_way way, typename W, typename Sum, int width, int vectors,
          int lanes, bool exact, bool adds>
__global__ void __launch_bounds__(threads_of<lanes>,
                                  resident<Sum, lanes, exact, adds> / threads_of<lanes>)
    rms_norm(const T* __restrict__ x, const T* __restrict__ residual, const W* __restrict__ weight,
             T* __restrict__ sum, T* __restrict__ out, long long rows, int n, Sum share, Sum eps) {
    constexpr int rows_of_block = threads_of<lanes> / lanes, stride = lanes * width;
    constexpr bool early = exact && vectors * lanes <= 128 && lanes <= dotcu::warp_size;
    __shared__ dotcu::vector<W, width> scales[early ? vectors * lanes : 1];
    __shared__ Sum shared[dotcu::row_scratch];
    const long long row = blockIdx.x * static_cast<long long>(rows_of_block) + threadIdx.x / lanes;
    const int chunk = gridDim.y * vectors * stride, me = threadIdx.x % lanes;
    if constexpr (lanes > dotcu::warp_size) dotcu::cluster_arrive();
    x += row * n, residual += row * n, sum += row * n, out += row * n;
    // A row beyond the last has no columns.
    const dotcu::row_split<way, width, 2> split(row < rows ? n : 0, out, x, adds ? residual : x);
    const int begin = split.first, end = split.inner;

    dotcu::vector<T, width> part[vectors], more[vectors];
    dotcu::vector<T, 1> edge[split.template edges_of_thread<lanes> + 1];
    Sum squares = 0;
    dotcu::vector<W, width> scale;
    if (early && threadIdx.x < vectors * lanes) {
        scale = dotcu::load<width>(weight + threadIdx.x * width);
    }
    const auto load = [&](dotcu::vector<T, width>(&to)[vectors], const T* from, int input, int at) {
#pragma unroll
        for (int v = 0, i = at; v < vectors; ++v, i += stride) {
            to[v] = split.load(exact || i < end, from + begin + i, input, static_cast<T>(0));
        }
    };
    int at = blockIdx.y * vectors * stride + me * width;
    if constexpr (!exact) at += max(end - 1, 0) / chunk * chunk;
    for (;; at -= chunk) {
        load(part, x, 0, at);
        if constexpr (adds) load(more, residual, 1, at);
#pragma unroll
        for (int v = 0, i = at; v < vectors; ++v, i += stride) {
            if constexpr (adds) part[v] = sum_of<Sum>(part[v], more[v]);
            if (adds && (exact || i < end)) dotcu::store(sum + begin + i, part[v]);
            squares += squares_of<Sum>(part[v]);
            dotcu::repack(part[v]);
        }
        if (exact || at < chunk) break;
    }
    if (blockIdx.y == 0) {
        split.template each_edge<lanes>(me, [&](int k, int i) {
            edge[k][0] = x[i];
            if constexpr (adds) edge[k] = sum_of<Sum>(edge[k], dotcu::load<1>(residual + i));
            if constexpr (adds) dotcu::store(sum + i, edge[k]);
            squares += squares_of<Sum>(edge[k]);
        });
    }

    if (early && threadIdx.x < vectors * lanes) scales[threadIdx.x] = scale;
    if constexpr (early) __syncthreads();
    if constexpr (lanes > dotcu::warp_size) dotcu::cluster_wait();
    const Sum r = rsqrt(dotcu::reduce_row<lanes>(squares, shared, dotcu::plus()) * share +
                        eps);  // share: 1 / n
    while (true) {
        dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int i) {
            if constexpr (way != dotcu::aligned)
                scale = dotcu::load_shifted<width>(weight, begin + i, n);
            else
                scale = early ? scales[early ? v * lanes + me : 0] : dotcu::load<width>(weight + i);
            dotcu::store(out + begin + i, scaled(part[v], scale, r));
        });
        at += chunk;
        if (exact || at >= end) break;
        load(part, adds ? sum : x, adds ? -1 : 0, at);
    }
    if (blockIdx.y == 0) {
        split.template each_edge<lanes>(me, [&](int k, int i) {
            dotcu::store(out + i, scaled(edge[k], dotcu::load<1>(weight + i), r));
        });
    }
}
