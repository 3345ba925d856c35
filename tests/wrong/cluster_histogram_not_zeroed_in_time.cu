// A histogram spread over a cluster: a block may add to bins that their owner has not set to zero
// yet.
#include <cooperative_groups.h>

__global__ void spread(const unsigned char* x, int* out, int n) {
    __shared__ int bins[16];
    auto cluster = cooperative_groups::this_cluster();
    int t = threadIdx.x, blocks = cluster.num_blocks();
    if (t < 16) bins[t] = 0;  // OTHER
#ifdef FIXED
    cluster.sync();
#else
    __syncthreads();
#endif
    for (int i = cluster.thread_rank(); i < n; i += cluster.num_threads()) {
        int bin = x[i] % (16 * blocks);
        atomicAdd(cluster.map_shared_rank(bins, bin / 16) + bin % 16, 1);  // FAULT: race
    }
    cluster.sync();
    if (t < 16) out[16 * cluster.block_rank() + t] = bins[t];
}
