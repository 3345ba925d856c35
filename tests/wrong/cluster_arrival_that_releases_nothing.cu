// Values go into the next block's shared memory; the arrival at its mbarrier is relaxed, or it
// releases them.
#ifdef FIXED
#define ARRIVE "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"
#else
#define ARRIVE "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];"
#endif
#define MEET "barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;"

__device__ unsigned other(const void* p) {
    unsigned there, rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there)
                 : "r"((unsigned)__cvta_generic_to_shared(p)), "r"(rank ^ 1));
    return there;
}

__global__ void push(const int* x, int* out) {
    __shared__ alignas(8) unsigned long long full;
    __shared__ int box[32];
    unsigned t = threadIdx.x, at = static_cast<unsigned>(__cvta_generic_to_shared(&full)), done = 0;
    if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(at) : "memory");
    asm volatile(MEET ::: "memory");
    int value = x[blockIdx.x * 32 + t];
    asm volatile("st.shared::cluster.s32 [%0], %1;" ::"r"(other(box + t)), "r"(value)  // OTHER
                 : "memory");
    asm volatile(ARRIVE ::"r"(other(&full)) : "memory");
    while (!done)
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;"
            " selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(at)
            : "memory");
    out[blockIdx.x * 32 + t] = box[31 - t];  // FAULT: race
    asm volatile(MEET ::: "memory");
}
