// A round writes over the tile that the other block of the cluster may still be reading.
#include <cooperative_groups.h>

__global__ void rounds(const int* x, int* out, int n) {
    __shared__ int tile[32];
    auto cluster = cooperative_groups::this_cluster();
    int t = threadIdx.x, sum = 0;
    const int* other = cluster.map_shared_rank(tile, cluster.block_rank() ^ 1);
    for (int i = 0; i < n; ++i) {
        tile[t] = x[(blockIdx.x * n + i) * 32 + t];  // FAULT: race
        cluster.sync();
        sum += other[31 - t] * (i + 1);  // OTHER
#ifdef FIXED
        cluster.sync();
#endif
    }
    out[blockIdx.x * 32 + t] = sum;
    cluster.sync();
}
