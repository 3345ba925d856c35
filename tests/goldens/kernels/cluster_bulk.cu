// Bulk copies from a block's shared memory into another block's, and from global memory into
// several.
#include "cluster.cuh"

DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__global__ void cluster_bulk(const unsigned* in, unsigned* out) {
    __shared__ alignas(8) unsigned long long arrived, spread;
    __shared__ alignas(128) unsigned given[64], taken[64], all[4][32];
    unsigned t = threadIdx.x, r = rank(), n = blocks(), next = (r + 1) % n;
    given[2 * t] = in[blockIdx.x * 64 + t];
    given[2 * t + 1] = in[blockIdx.x * 64 + 32 + t];
    for (int k = 0; k < 4; ++k) all[k][t] = 7777;
    fence_async();
    if (t == 0) {
        init(&arrived, 1);
        init(&spread, 1);
        expect(&arrived, 192);
        // Of the four copies of each block, one goes to each whose rank differs by at most 1, and
        // to itself.
        unsigned count = 0;
        for (unsigned from = 0; from < n; ++from)
            count += from == r || from == r + 1 || from + 1 == r;
        expect(&spread, 128 * count);
    }
    meet();
    if (t == 0) {
        asm volatile(
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], "
            "192, [%2];" ::"r"(far(taken, next)),
            "r"(near(given)), "r"(far(&arrived, next))
            : "memory");
        unsigned short mask = (7u << r >> 1) & ((1u << n) - 1);
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
            " [%0], [%1], 128, [%2], %3;" ::"r"(near(all[r])),
            "l"(in + blockIdx.x * 64 + 16), "r"(near(&spread)), "h"(mask)
            : "memory");
    }
    wait_for(&arrived, 0);
    wait_for(&spread, 0);
    if (t < 48) out[blockIdx.x * 192 + t] = taken[t];
    if (t < 16) out[blockIdx.x * 192 + 32 + t] = taken[32 + t];
    for (int k = 0; k < 4; ++k) out[blockIdx.x * 192 + 64 + 32 * k + t] = all[k][t];
    if (t < 16) out[blockIdx.x * 192 + 48 + t] = 1;
    meet();
}
