// A grid that synchronizes: prefix sums of blocks' totals, in one launch.

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

extern "C" __global__ void cooperative_grid(const int* in, int* totals, int* out) {
    __shared__ int sum;
    const cg::grid_group grid = cg::this_grid();
    const int i = grid.thread_rank();
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, in[i]);
    __syncthreads();
    if (threadIdx.x == 0) totals[blockIdx.x] = sum;
    grid.sync();
    int before = 0;
    for (int b = 0; b < blockIdx.x; ++b) before += totals[b];
    out[i] = before + in[i];
    grid.sync();
    if (i < gridDim.x) totals[i] = out[i * blockDim.x];
}
