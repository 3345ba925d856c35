// dotcu/schedule.cuh: the order in which persistent blocks take tiles.
//
//     const dotcu::tile_grid tiles{batches, rows, columns};       // counts of tiles
//     for (int t = blockIdx.x; t < tiles.count(); t += gridDim.x) {
//         const dotcu::tile at = tiles.grouped(t, 8);
//         ...                                                     // at.batch, at.row, at.column
//     }
//
// Blocks that run at the same time take consecutive tiles. Row by row, these would read few rows of
// one operand and all columns of the other; in groups of some rows they form a square, and read
// what is in L2. Under a causal mask rows have different lengths: the longest first, so that no
// block is left with a long one at the end.
#pragma once

namespace dotcu {

struct tile {
    int batch, row, column;
};

struct tile_grid {
    int batches, rows, columns;

    __device__ int count() const { return batches * rows * columns; }

    // Groups of `high` rows of tiles; column by column within one, and from right to left in every
    // second one, so that a group begins where the last one ended.
    __device__ tile grouped(int t, int high) const {
        const int batch = t / (rows * columns), of_batch = t - batch * rows * columns;
        const int group = of_batch / (high * columns), of_group = of_batch - group * high * columns;
        const int height = min(high, rows - group * high);
        const int column = of_group / height, row = of_group - column * height;
        return {batch, group * high + row, group % 2 ? columns - 1 - column : column};
    }

    // The last row of all batches first: under a causal mask it is the longest.
    __device__ tile longest_first(int t) const {
        const int of_row = batches * columns, row = t / of_row, rest = t - row * of_row;
        return {rest / columns, rows - 1 - row, rest % columns};
    }
};

// The tiles of groups of rows of one matrix: group g has the rows from ends[g - 1] to ends[g], and
// its own factor. Where the groups are is read on the device; each thread walks over them, so that
// `t` may not decrease from call to call.
struct group_tiles {
    const int* ends;
    int groups, rows, high, columns;      // rows of the matrix and of a tile; tiles side by side
    int group = 0, begin = 0, first = 0;  // where the walk is: its first row, and its first tile

    // Gives the tile, whose row is its first one in the matrix, and the end of its group.
    __device__ bool find(int t, tile& at, int& end) {
        for (; group < groups; ++group) {
            end = max(begin, min(ends[group], rows));
            const int down = (end - begin + high - 1) / high, of_group = t - first;
            if (of_group < down * columns) {
                at = {group, begin + of_group % down * high, of_group / down};
                return true;
            }
            first += down * columns, begin = end;
        }
        return false;
    }
};

}  // namespace dotcu
