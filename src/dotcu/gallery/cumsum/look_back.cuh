// look_back.cuh: the sum of the tiles above a tile, from their messages; always in one order.
//
// Tiles are in groups. A tile sends its own sum at once, and receives those of the tiles before it
// in its group. The last tile of the previous group sends the prefix of the group. So each tile
// waits for one message, however many tiles run, and the chain has one link per group. The columns
// of a tile are adjacent, so its sums are whole lines of memory, and few tiles read each of them: a
// conductor (conductor.cuh) is not needed. Tiles wait for lower blocks, as explained there.
#pragma once

#include <dotcu/reduce.cuh>
#include "message.cuh"

using namespace dotcu;

// The words of a row's messages: a sum for each tile, and a prefix for each group.
template <typename Carry>
__device__ long long words_of_row(int tiles, int group_tiles) {
    return static_cast<long long>(tiles + tiles / group_tiles + 1) * carry_of<Carry>::words;
}

constexpr int ahead = 8;

// Returns, in slot 0, the sum of one column over the tiles above this one. `slots` threads, this
// one being number `slot`, compute it together. `messages` has a line of `columns` entries for each
// tile, then one for each group, with its prefix. `of_slot` is shared memory, one for each thread.
template <int columns, int slots, typename Carry>
__device__ Carry above(word* messages, int tile, int tiles, Carry of_tile, Carry* of_slot) {
    constexpr int words = carry_of<Carry>::words, group_tiles = ahead * slots;
    constexpr long long line = columns * words;
    const int column = threadIdx.x % columns, slot = threadIdx.x / columns;
    const int group = tile / group_tiles, first = group * group_tiles + slot;
    messages += column * words;
    if (slot == 0) send(messages + tile * line, of_tile);
    const int count = tile > first ? (tile - first - 1) / slots + 1 : 0;
    of_slot[threadIdx.x] = receive_sum<ahead, Carry>(messages + first * line, count, slots * line);
    __syncthreads();
    Carry sum = 0;
    if (slot == 0) {
        for (int other = 0; other < slots; ++other) sum += of_slot[other * columns + column];
        word* of_group = messages + (tiles + group) * line;
        if (group > 0) sum += receive_sum<1, Carry>(of_group, 1, 0);
        if (tile + 1 == (group + 1) * group_tiles) send(of_group + line, sum + of_tile);
    }
    return sum;
}
