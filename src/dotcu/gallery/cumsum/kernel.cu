// cumsum: out[i] = x[0] + x[1] + ... + x[i] in each row, or from the row's end on (reverse).
//
//     x, out: rows of n elements, contiguous. tiles.cu has longer rows, columns.cu scans along
//     another dimension than the last
//
// Idea: each element is read once, stays in shared memory until its prefix is known, and is written
// once. Lanes of a warp share a short row; a longer row has a block or a cluster. Shuffles scan the
// part of a warp, shared memory combines warps and blocks. The order of additions is fixed, so each
// call gives the same bits; sums of warps are added as doubles, so that a long row is as accurate
// as a short one.
//
// Cost: n additions and 2 n elements moved: bound by memory.

#include <dotcu/cluster.cuh>
#include <dotcu/grid.cuh>
#include "message.cuh"
#include "strip.cuh"

// Returns the sum of the earlier blocks of the cluster. Every block has arrived once at its start.
template <typename Carry>
__device__ Carry before_in_cluster(Carry of_mine) {
    __shared__ Carry of_block[max_cluster];
    const unsigned rank = cluster_rank();
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x < cluster_blocks()) *shared_of(of_block + rank, threadIdx.x) = of_mine;
    cluster_sync();
    Carry before = 0;
    for (unsigned block = 0; block < rank; ++block) before += of_block[block];
    return before;
}

// One row per cluster of `blocks` blocks; each has `threads` times `vectors` vectors.
template <typename T, typename Out, typename Sum, int width, int vectors, int threads, int blocks,
          row_way way, bool reverse>
__global__ void __launch_bounds__(threads) cumsum(const T* x, Out* out, long long n) {
    using Strip = strip<T, Out, Sum, width, vectors, warp_size, way, reverse>;
    using Carry = typename carry_of<Sum>::type;
    constexpr int warps = threads / warp_size;
    __shared__ Carry of_warp[warps];
    // The block has started: the other blocks may now write to its shared memory.
    if constexpr (blocks > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;");

    const int warp = threadIdx.x / warp_size;
    const long long row = blockIdx.x / blocks, part = blockIdx.x % blocks * warps + warp;
    const long long first = part * vectors * warp_size + threadIdx.x % warp_size;
    const long long at = Strip::place(first, n, out + row * n);
    __shared__ typename Strip::V parts[warps][Strip::places];
    Strip mine;
    mine.take(parts[warp]);
    mine.load(x + row * n, at, n);
    mine.wait();
    const Sum of_mine = mine.scan();
    if (threadIdx.x % warp_size == 0) of_warp[warp] = of_mine;
    __syncthreads();
    Carry before = 0, of_block = 0;
    for (int other = 0; other < warps; ++other) {
        if (other == warp) before = of_block;
        of_block += of_warp[other];
    }
    if constexpr (blocks > 1) before += before_in_cluster(of_block);
    mine.store(out + row * n, at, n, before);
}

// Short rows: `lanes` lanes for each, `batch` rows at a time.
template <typename T, typename Out, typename Sum, int width, int vectors, int threads, int lanes,
          int batch, row_way way, bool reverse>
__global__ void __launch_bounds__(threads)
    cumsum_rows(const T* x, Out* out, long long n, long long rows) {
    using Strip = strip<T, Out, Sum, width, vectors, lanes, way, reverse>;
    constexpr int per_warp = warp_size / lanes;
    const long long first =
        thread_of_grid() / warp_size * (per_warp * batch) + threadIdx.x % warp_size / lanes;
    __shared__ typename Strip::V parts[batch][threads / lanes][Strip::places];
    const auto at = [&](long long row) {
        return Strip::place(threadIdx.x % lanes, n, out + row * n);
    };
    Strip mine[batch];
    for (int b = 0; b < batch; ++b) {
        const long long row = first + b * per_warp;
        mine[b].take(parts[b][threadIdx.x / lanes]);
        mine[b].load(x + row * n, at(row), row < rows ? n : 0);
    }
    for (int b = 0; b < batch; ++b) {
        const long long row = first + b * per_warp;
        mine[b].wait();
        mine[b].scan();
        mine[b].store(out + row * n, at(row), row < rows ? n : 0, Sum(0));
    }
}
