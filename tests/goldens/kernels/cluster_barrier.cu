// The barrier of the cluster: arrivals apart from waits, relaxed ones after a fence, and blocks
// that exit.
#include "cluster.cuh"

__global__ void cluster_barrier(int* out) {
    __shared__ int box[64];
    int t = threadIdx.x, value = 64 * rank() + t, next = (rank() + 1) % blocks();
    for (int round = 0; round < 5; ++round) {
        box[t] = value;
        if (round % 2) {
            asm volatile("fence.acq_rel.cluster;" ::: "memory");
            asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
        } else {
            arrive();
        }
        int own = value * 3;
        wait();
        int found;
        asm volatile("ld.shared::cluster.s32 %0, [%1];"
                     : "=r"(found)
                     : "r"(far(box + (t ^ 1), next))
                     : "memory");
        value = own + found + round;
        asm volatile("barrier.cluster.arrive;" ::: "memory");
        asm volatile("barrier.cluster.wait;" ::: "memory");
    }
    out[blockIdx.x * 64 + t] = value;
    // Threads that have exited are not waited for.
    if (rank() == 1 || t >= 32) return;
    meet();
    out[blockIdx.x * 64 + t] += 1000;
}
