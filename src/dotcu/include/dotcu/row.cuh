// dotcu/row.cuh: a row in the hands of some threads.
//
//     dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int i) { ... x + i ... });
//     sum = dotcu::reduce_row<lanes>(sum, scratch, dotcu::plus());
//
// A thread has `vectors` vectors of its row, the first at `at`, each `stride` elements after the
// one before; together the threads have neighbouring ones. `lanes` threads share a row: a part of a
// warp, or a block, or a cluster of blocks with as many threads each.
#pragma once

#include <dotcu/cluster.cuh>
#include <dotcu/reduce.cuh>

namespace dotcu {

// f(v, i) for each vector of a thread, at column i; those from `end` on are left out. `exact`:
// there are none, for the threads hold the row without rest.
template <int vectors, int stride, bool exact, typename F>
__device__ void each_vector(int at, int end, F f) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        if (exact || at + v * stride < end) f(v, at + v * stride);
    }
}

// Places that reduce_row takes in shared memory: one for each warp and each block.
constexpr int row_scratch = warp_size + max_cluster;

// One value out of those of a row's threads, for all of them. Two reductions in a row take scratch
// of their own. A kernel that is launched in clusters calls cluster_arrive() at its start and
// cluster_wait() before the first reduction.
template <int lanes, typename T, typename Op>
__device__ T reduce_row(T value, T* scratch, Op op) {
    if constexpr (lanes <= warp_size) {
        return reduce_warp<lanes>(value, op);
    } else {
        return reduce_cluster(reduce_block<lanes>(value, scratch, op), scratch + warp_size, op);
    }
}

// a * b, rounded before anything is added to it: the same number wherever it is taken from itself,
// as from a mean over a row of one element.
__device__ inline float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double rounded_product(double a, double b) { return __dmul_rn(a, b); }

// Whether a row is to be reduced once more, which all of its threads answer alike; where rows share
// a warp, whether any of them is, since a warp's lanes reduce together.
template <int lanes>
__device__ bool any_of_row(bool answer) {
    if constexpr (lanes < warp_size) return __any_sync(all_lanes, answer);
    return answer;
}

// Warps of a row in one block.
template <int lanes>
constexpr int row_warps = lanes > warp_size ? lanes / warp_size : 1;

// What each warp of a row has found, in the shared memory of each of its blocks: `all` gets one for
// each warp, those of a block together, for which it has max_cluster * row_warps<lanes> places. Two
// such in a row take places of their own; for a cluster holds what reduce_row says.
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
