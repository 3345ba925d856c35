// cumsum of long rows: as kernel.cu, but cut into tiles that many multiprocessors scan at once.
//
// Idea: a block loads a tile into shared memory, computes its sum and sends it to the row's
// conductor, another block. While the conductor computes the tile's prefix, the block scans the
// tile; then it writes the result. Each element is read once and written once, and while some tiles
// wait, others load: a multiprocessor of an H200 holds 9 tiles of 20 KB.
//
// Cost: each element is added three times and moved twice; each tile sends and receives 16 bytes
// (32 for integers): bound by memory.
// Source: Merrill, Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016, for
// tiles that wait for each other.

#include <dotcu/grid.cuh>
#include "conductor.cuh"
#include "strip.cuh"

// Clears the messages before a scan by tiles.
__global__ void clear(word* messages, long long words) {
    launch_later();
    const long long i = thread_of_grid();
    if (i < words) messages[i] = 0;
}

// Each row has a conductor and `tiles` tiles of `threads` times `vectors` vectors. `messages` has
// two entries for each tile: its sum and its prefix.
// With `in_order` no tile waits for a later one, for GPUs that hold few blocks.
template <typename T, typename Out, typename Sum, int width, int vectors, int threads, row_way way,
          bool in_order, bool reverse>
__global__ void __launch_bounds__(threads, 1536 / threads)
    cumsum_tiles(const T* x, Out* out, long long n, int tiles, word* messages) {
    using Strip = strip<T, Out, Sum, width, vectors, warp_size, way, reverse>;
    using Carry = typename carry_of<Sum>::type;
    constexpr int words = carry_of<Carry>::words, warps = threads / warp_size;
    const int row = blockIdx.x / (tiles + 1), tile = blockIdx.x % (tiles + 1) - 1;
    word* sums = messages + row * (2ll * tiles * words);
    word* starts = sums + static_cast<long long>(tiles) * words;
    if (tile < 0) {
        wait_for_earlier();
        if (!in_order) conduct<threads, Carry>(sums, starts, tiles);
        if (in_order && threadIdx.x == 0) conduct_in_order<Carry>(sums, starts, tiles);
        return;
    }
    __shared__ Carry sum_of_warp[warps], of_warp[warps];  // converted once, not by each thread
    __shared__ Carry start;
    __shared__ typename Strip::V parts[warps][Strip::places];
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    const long long part = static_cast<long long>(tile) * warps + warp;
    const long long at = Strip::place(part * vectors * warp_size + lane, n, out + row * n);
    Strip mine;
    mine.take(parts[warp]);
    mine.load(x + row * n, at, n);
    mine.wait();
    const Sum all = mine.sum();
    if (lane == 0) sum_of_warp[warp] = all;
    __syncthreads();
    if (threadIdx.x == 0) {
        Carry sum = 0;
        for (int other = 0; other < warps; ++other) sum += sum_of_warp[other];
        wait_for_earlier();
        send(sums + tile * words, sum);
    }
    const Sum of_mine = mine.scan();
    if (lane == 0) of_warp[warp] = of_mine;
    if (threadIdx.x == 0) start = receive_sum<1, Carry>(starts + tile * words, 1, 0);
    __syncthreads();
    Carry before = start;
#pragma unroll
    for (int other = 0; other < warps - 1; ++other) {
        if (other < warp) before += of_warp[other];
    }
    mine.store(out + row * n, at, n, before);
}
