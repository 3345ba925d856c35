// mbarriers of other blocks: arrivals with and without counts, and transactions.
#include "cluster.cuh"

__global__ void cluster_mbarrier(int* out, int rounds) {
    __shared__ alignas(8) unsigned long long full, empty;
    __shared__ int box[32];
    int t = threadIdx.x, r = rank(), n = blocks(), seen = 0;
    if (t == 0) {
        init(&full, 32 + 3);
        init(&empty, 1);
    }
    meet();
    unsigned next = far(&full, (r + 1) % n), back = far(&empty, (r + n - 1) % n);
    for (int round = 0; round < rounds; ++round) {
        wait_for(&empty, (round & 1) ^ 1);
        asm volatile("st.shared::cluster.s32 [%0], %1;" ::"r"(far(box + t, (r + 1) % n)),
                     "r"(100 * r + t + round)
                     : "memory");
        if (t == 5) {
            asm volatile(
                "mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%0], 48;" ::"r"(next)
                : "memory");
            asm volatile(
                "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], 16;" ::"r"(next)
                : "memory");
            asm volatile(
                "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0], 3;" ::"r"(next)
                : "memory");
            asm volatile(
                "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], 32;" ::"r"(next)
                : "memory");
        }
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(next)
                     : "memory");
        wait_for(&full, round & 1);
        seen = seen * 7 + box[31 - t];
        __syncwarp();
        if (t == 0)
            asm volatile(
                "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], 8;"
                "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], 8;" ::"r"(back)
                : "memory");
    }
    out[blockIdx.x * 32 + t] = seen;
    meet();
}
