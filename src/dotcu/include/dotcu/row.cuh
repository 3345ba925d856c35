// dotcu/row.cuh: rows that are shared by several threads.
//
//     dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int i) { ... x + i ... });
//     sum = dotcu::reduce_row<lanes>(sum, scratch, dotcu::plus());
//
// A thread has `vectors` vectors of its row: the first at `at`, the next ones `stride` elements
// apart, so that neighbouring threads have neighbouring vectors. `lanes` threads share a row: a
// part of a warp, a block, or a cluster of blocks with as many threads each.
#pragma once

#include <dotcu/cluster.cuh>
#include <dotcu/reduce.cuh>

namespace dotcu {

// Calls f(v, i) for each vector of a thread, at column i, except those from `end` on. `exact`: the
// vectors of the threads are exactly the row, so there are none.
template <int vectors, int stride, bool exact, typename F>
__device__ void each_vector(int at, int end, F f) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        if (exact || at + v * stride < end) f(v, at + v * stride);
    }
}

// The values of shared memory that reduce_row needs: one for each warp and each block.
constexpr int row_scratch = warp_size + max_cluster;

// Reduces the values of a row's threads; all of them get the result. Two consecutive reductions
// need scratch memory of their own. A kernel launched with clusters calls cluster_arrive() at its
// start and cluster_wait() before the first reduction.
template <int lanes, typename T, typename Op>
__device__ T reduce_row(T value, T* scratch, Op op) {
    if constexpr (lanes <= warp_size) {
        return reduce_warp<lanes>(value, op);
    } else {
        return reduce_cluster(reduce_block<lanes>(value, scratch, op), scratch + warp_size, op);
    }
}

// a * b, rounded before anything is added to it (not fused), so that the difference of two equal
// products is zero, as with the mean of a row of one element.
__device__ inline float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double rounded_product(double a, double b) { return __dmul_rn(a, b); }

// Returns `answer`, which is the same in all threads of a row. If rows share a warp, returns true
// if it is true for any of them, since the lanes of a warp reduce together.
template <int lanes>
__device__ bool any_of_row(bool answer) {
    if constexpr (lanes < warp_size) return __any_sync(all_lanes, answer);
    return answer;
}

// The number of a row's warps in one block.
template <int lanes>
constexpr int row_warps = lanes > warp_size ? lanes / warp_size : 1;

// Copies one value of each warp of a row to the shared memory of each of its blocks. `all` has
// max_cluster * row_warps<lanes> entries; those of a block are adjacent. Two consecutive calls need
// an array each; clusters as for reduce_row.
template <int lanes, typename T>
__device__ void share_row(const T& of_warp, T* all) {
    const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    if (cluster_blocks() == 1) {
        if (lane == 0) all[warp] = of_warp;
        __syncthreads();
    } else {
        all += cluster_rank() * row_warps<lanes> + warp;
        if (lane < cluster_blocks()) *shared_of(all, lane) = of_warp;
        cluster_sync();
    }
}

}  // namespace dotcu
