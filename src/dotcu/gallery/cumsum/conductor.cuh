// conductor.cuh: the sum before each tile of a row, by one block that adds up for all.
//
// A tile tells its sum, and hears from the row's conductor what stands before it: two trips to L2,
// however many tiles there are. If each looked back itself, hundreds of blocks would read the same
// few lines of memory again and again, and the L2 slices that have those would hold up all others.
//
// A warp of the conductor hears 32 tiles and scans their sums, all warps at once; only what stands
// before the 32 goes from warp to warp, through shared memory. Which sums are added in which order
// hangs on the tiles alone, so every call gives the same bits.
//
// Who waits must not keep out whom it waits for. A tile waits for the conductor, for lower tiles,
// and for the others of its 32; blocks start in the order of their indices. So there is always one
// that goes on, if 33 blocks fit on the GPU. Where fewer do, the conductor hears one tile after the
// other, and each waits for lower ones alone. CUDA does not promise the order; its GPUs keep it,
// and CUB's scans rely on it as well (github.com/NVIDIA/cub/issues/245).
#pragma once

#include <dotcu/reduce.cuh>
#include "message.cuh"

using namespace dotcu;

// Done by all threads of a block. `sums` and `starts` have a place for each tile of the row.
template <int threads, typename Carry>
__device__ void conduct(const word* sums, word* starts, int tiles) {
    constexpr int words = carry_of<Carry>::words, warps = threads / warp_size;
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    __shared__ word link[warps * words];  // for each warp: what stands before its tiles
    if (lane < words) link[warp * words + lane] = 0;
    __syncthreads();
    word *mine = link + warp * words, *next = link + (warp + 1) % warps * words;
    if (threadIdx.x == 0) tell(mine, Carry(0));
    for (int tile = threadIdx.x; tile - lane < tiles; tile += threads) {
        Carry sum = hear_all<1, Carry>(sums + tile * words, tile < tiles, 0);
        for (int distance = 1; distance < warp_size; distance *= 2) {
            const Carry other = __shfl_up_sync(all_lanes, sum, distance);
            if (lane >= distance) sum += other;
        }
        const Carry above = __shfl_up_sync(all_lanes, sum, 1);
        const Carry base = hear_all<1, Carry>(mine, 1, 0);
        __syncwarp();
        if (lane < words) put(mine + lane, 0);
        __syncwarp();
        __threadfence_block();  // `mine` is told anew only after this
        if (lane == warp_size - 1) tell(next, base + sum);
        if (tile < tiles) tell(starts + tile * words, lane == 0 ? base : base + above);
    }
}

// The same by one thread, tile by tile.
template <typename Carry>
__device__ void conduct_in_order(const word* sums, word* starts, int tiles) {
    constexpr int words = carry_of<Carry>::words;
    Carry base = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        tell(starts + tile * words, base);
        base += hear_all<1, Carry>(sums + tile * words, 1, 0);
    }
}
