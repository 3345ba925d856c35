#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

// A sum over a tile of 32 threads that half of the tile calls, as the others have left.
__global__ void sums(const int* x, int* out) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    int i = threadIdx.x;
#ifndef FIXED
    if (i % 32 >= 16) return;
#endif
    int sum = cg::reduce(tile, x[i], cg::plus<int>());  // FAULT: barrier
    if (i % 32 < 16) out[i] = sum;
}
