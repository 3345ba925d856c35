// look_back.cuh: the sum of the tiles above a tile, from what they tell; always in one order.
//
// Tiles are in groups. A tile tells its own sum at once, and hears those of the tiles before it in
// its group; what stands before the group, the last tile of the group before has told. So however
// many tiles run, each waits for one message, and a chain has one link for each group. Columns of
// one tile lie beside each other, so a tile's sums are whole lines, and few tiles read each: there
// is no need for a conductor (conductor.cuh). That tiles wait for lower blocks is as there.
#pragma once

#include <dotcu/reduce.cuh>
#include "message.cuh"

using namespace dotcu;

// The words that the tiles of a row need: a sum for each, and for each group what stands before it.
template <typename Carry>
__device__ long long words_of_row(int tiles, int group_tiles) {
    return static_cast<long long>(tiles + tiles / group_tiles + 1) * carry_of<Carry>::words;
}

constexpr int ahead = 8;

// The sum of the tiles above this one for one column, of which this thread is number `slot` of
// `slots`, all of which take part. `told` has a line of `columns` places for each tile, then one
// for each group, of what stands above it. In slot 0; `of_slot` is shared memory for each thread.
template <int columns, int slots, typename Carry>
__device__ Carry above(word* told, int tile, int tiles, Carry of_tile, Carry* of_slot) {
    constexpr int words = carry_of<Carry>::words, group_tiles = ahead * slots;
    constexpr long long line = columns * words;
    const int column = threadIdx.x % columns, slot = threadIdx.x / columns;
    const int group = tile / group_tiles, first = group * group_tiles + slot;
    told += column * words;
    if (slot == 0) tell(told + tile * line, of_tile);
    const int count = tile > first ? (tile - first - 1) / slots + 1 : 0;
    of_slot[threadIdx.x] = hear_all<ahead, Carry>(told + first * line, count, slots * line);
    __syncthreads();
    Carry sum = 0;
    if (slot == 0) {
        for (int other = 0; other < slots; ++other) sum += of_slot[other * columns + column];
        word* of_group = told + (tiles + group) * line;
        if (group > 0) sum += hear_all<1, Carry>(of_group, 1, 0);
        if (tile + 1 == (group + 1) * group_tiles) tell(of_group + line, sum + of_tile);
    }
    return sum;
}
