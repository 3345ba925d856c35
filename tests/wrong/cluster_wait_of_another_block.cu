// A wait for the mbarrier of another block: only arrivals reach it there.
#include "cluster.cuh"

__global__ void watch(const int* x, int* out) {
    __shared__ alignas(8) unsigned long long ready;
    __shared__ int box[32];
    unsigned t = threadIdx.x, other = rank() ^ 1;
    if (t == 0) INIT(&ready, 32);
    MEET();
    box[t] = x[blockIdx.x * 32 + t];
    ARRIVE(&ready, other);
#ifdef FIXED
    unsigned at = near(&ready);
#else
    unsigned at = far(&ready, other);
#endif
    for (unsigned done = 0; !done;)
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; "
            "}"
            : "=r"(done)
            : "r"(at)  // FAULT: out-of-bounds
            : "memory");
#ifdef FIXED
    int found;
    asm volatile("ld.shared::cluster.s32 %0, [%1];"
                 : "=r"(found)
                 : "r"(far(box + 31 - t, other))
                 : "memory");
    out[blockIdx.x * 32 + t] = found;
#endif
    MEET();
}
