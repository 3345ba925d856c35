// Each block reads what the next block of its cluster wrote, behind a barrier of its own block
// alone.
#include <cooperative_groups.h>

__global__ void rotate(const int* x, int* out) {
    __shared__ int tile[64];
    auto cluster = cooperative_groups::this_cluster();
    int t = threadIdx.x;
    tile[t] = x[blockIdx.x * 64 + t];  // OTHER
#ifdef FIXED
    cluster.sync();
#else
    __syncthreads();
#endif
    const int* next =
        cluster.map_shared_rank(tile, (cluster.block_rank() + 1) % cluster.num_blocks());
    out[blockIdx.x * 64 + t] = next[63 - t];  // FAULT: race
    cluster.sync();
}
