// Blocks of a cluster read each other's shared memory, and do not wait for each other before they
// end.
#include <cooperative_groups.h>

__global__ void neighbours(const int* x, int* out) {
    __shared__ int tile[64];
    auto cluster = cooperative_groups::this_cluster();
    int t = threadIdx.x;
    tile[t] = x[blockIdx.x * 64 + t];
    cluster.sync();
    const int* next = cluster.map_shared_rank(tile, cluster.block_rank() ^ 1);
    out[blockIdx.x * 64 + t] = tile[t] + next[t];  // FAULT: exited-block
#ifdef FIXED
    cluster.sync();
#endif
}
