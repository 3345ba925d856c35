// An arrival at the cluster's barrier that is relaxed releases nothing, unless a fence comes before
// it.
__global__ void shift(const int* x, int* out) {
    __shared__ int tile[64];
    unsigned there, rank, t = threadIdx.x;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(there)
        : "r"((unsigned)__cvta_generic_to_shared(tile + t)), "r"(rank ^ 1));
    tile[t] = x[blockIdx.x * 64 + t];  // OTHER
#ifdef FIXED
    asm volatile("fence.acq_rel.cluster;" ::: "memory");
#endif
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    int found;
    asm volatile("ld.shared::cluster.s32 %0, [%1];"
                 : "=r"(found)
                 : "r"(there)  // FAULT: race
                 : "memory");
    out[blockIdx.x * 64 + t] = found;
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
