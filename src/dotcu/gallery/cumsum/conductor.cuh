// conductor.cuh: the exclusive prefix of each tile of a row, computed by one block for all tiles.
//
// A tile sends its sum to the row's conductor and receives its prefix: two trips to L2, however
// many tiles there are. If each tile looked back by itself, hundreds of blocks would poll the same
// few lines of memory, and the L2 slices of these lines would slow down all other accesses.
//
// A warp of the conductor receives the sums of 32 tiles and scans them, all warps at the same time;
// only the prefix of the 32 passes from warp to warp, through shared memory. The order of additions
// depends on the tiles alone, so every call gives the same bits.
//
// Progress: a tile waits for the conductor, for lower tiles, and for the others of its 32. Blocks
// start in the order of their indices, so one block can always continue if 33 blocks fit on the
// GPU. If fewer fit, the conductor receives one tile after the other, and each tile waits for lower
// ones only. CUDA does not guarantee the order; its GPUs keep it, and CUB's scans depend on it as
// well (github.com/NVIDIA/cub/issues/245).
#pragma once

#include <dotcu/reduce.cuh>
#include "message.cuh"

using namespace dotcu;

// Called by all threads of a block. `sums` and `starts` have one entry for each tile of the row.
template <int threads, typename Carry>
__device__ void conduct(const word* sums, word* starts, int tiles) {
    constexpr int words = carry_of<Carry>::words, warps = threads / warp_size;
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    __shared__ word link[warps * words];  // for each warp: the prefix of its tiles
    if (lane < words) link[warp * words + lane] = 0;
    __syncthreads();
    word *mine = link + warp * words, *next = link + (warp + 1) % warps * words;
    if (threadIdx.x == 0) send(mine, Carry(0));
    for (int tile = threadIdx.x; tile - lane < tiles; tile += threads) {
        Carry sum = receive_sum<1, Carry>(sums + tile * words, tile < tiles, 0);
        for (int distance = 1; distance < warp_size; distance *= 2) {
            const Carry other = __shfl_up_sync(all_lanes, sum, distance);
            if (lane >= distance) sum += other;
        }
        const Carry above = __shfl_up_sync(all_lanes, sum, 1);
        const Carry base = receive_sum<1, Carry>(mine, 1, 0);
        __syncwarp();
        if (lane < words) store_word(mine + lane, 0);
        __syncwarp();
        __threadfence_block();  // the next message to `mine` comes after this
        if (lane == warp_size - 1) send(next, base + sum);
        if (tile < tiles) send(starts + tile * words, lane == 0 ? base : base + above);
    }
}

// The same with one thread, tile by tile.
template <typename Carry>
__device__ void conduct_in_order(const word* sums, word* starts, int tiles) {
    constexpr int words = carry_of<Carry>::words;
    Carry base = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        send(starts + tile * words, base);
        base += receive_sum<1, Carry>(sums + tile * words, 1, 0);
    }
}
