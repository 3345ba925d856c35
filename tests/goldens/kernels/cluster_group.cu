// cooperative_groups::this_cluster(): ranks, sizes, sync, its barrier, and shared memory by rank.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

__global__ void __cluster_dims__(2, 2, 1) cluster_group(const int* in, int* out) {
    __shared__ int box[64], total;
    auto cluster = cg::this_cluster();
    int t = threadIdx.x, block = blockIdx.x + gridDim.x * blockIdx.y, r = cluster.block_rank();
    box[t] = in[block * 64 + t];
    if (t == 0) total = 0;
    cluster.sync();
    int* other = cluster.map_shared_rank(box, r ^ 3);
    int sum = other[63 - t] + 1000 * cluster.query_shared_rank(other);
    atomicAdd(cluster.map_shared_rank(&total, 0), box[t]);
    auto token = cluster.barrier_arrive();
    int own = cluster.thread_rank() + 10000 * cluster.num_threads() + 100 * cluster.num_blocks();
    cluster.barrier_wait(static_cast<decltype(token)&&>(token));
    int* o = out + (block * 64 + t) * 4;
    o[0] = sum;
    o[1] = own;
    o[2] = *cluster.map_shared_rank(&total, 0);
    o[3] = cluster.block_index().x + 10 * cluster.block_index().y + 100 * cluster.dim_blocks().x +
           1000 * cluster.dim_threads().x + 100000 * cluster.dim_threads().y;
    cluster.sync();
}
