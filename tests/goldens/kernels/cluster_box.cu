// Boxes of a tensor by multicast: each block of a cluster of four asks for a quarter, all get the
// whole.
#include <dotcu/tma.cuh>

#include "cluster.cuh"

__global__ void cluster_box(const float* x, const __grid_constant__ CUtensorMap map, float* out) {
    __shared__ alignas(1024) float tile[32][32];
    __shared__ alignas(8) unsigned long long arrived;
    unsigned t = threadIdx.x, r = rank();
    if (t == 0) {
        init(&arrived, 1);
        expect(&arrived, sizeof(tile));
    }
    meet();
    if (t == 0)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
            "multicast::cluster"
            " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(near(tile[8 * r])),
            "l"(&map), "r"(0), "r"(8 * (int)r + 32 * (int)(blockIdx.x / 4)), "r"(near(&arrived)),
            "h"((short)15)
            : "memory");
    wait_for(&arrived, 0);
    for (int k = 0; k < 32; ++k) out[(blockIdx.x * 32 + k) * 32 + t] = tile[k][t];
    meet();
}
