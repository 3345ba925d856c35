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

// f(v, i) for each vector of a thread, at column i; those from `end` on are left out. `exact`: the
// threads hold the row without rest, or it has no columns.
template <int vectors, int stride, bool exact, typename F>
__device__ void each_vector(int at, int end, F f) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        if (exact ? end > 0 : at + v * stride < end) f(v, at + v * stride);
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

}  // namespace dotcu
