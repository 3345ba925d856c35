// Cooperative groups: sums of tiles of 8 lanes, and of those lanes that hold an odd number.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

__global__ void sums(const int* x, int* tile_sums, int* odd_total) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int value = x[threadIdx.x];
    int sum = cg::reduce(tile, value, cg::plus<int>());
    if (tile.thread_rank() == 0) tile_sums[threadIdx.x / 8] = sum;
    if (value % 2 != 0) {
        cg::coalesced_group odd = cg::coalesced_threads();
        int part = 0;
        for (int j = 0; j < odd.num_threads(); ++j) part += odd.shfl(value, j);
        if (odd.thread_rank() == 0) atomicAdd(odd_total, part);
    }
}
