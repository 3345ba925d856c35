// A thread arrives at the cluster's barrier again before it has waited for its first arrival.
__global__ void twice(const int* x, int* out) {
    __shared__ int tile[32];
    unsigned there, rank, t = threadIdx.x;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(there)
        : "r"((unsigned)__cvta_generic_to_shared(tile + t)), "r"(rank ^ 1));
    tile[t] = x[blockIdx.x * 32 + t];
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#ifdef FIXED
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");  // FAULT: barrier
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    int found;
    asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(found) : "r"(there) : "memory");
    out[blockIdx.x * 32 + t] = found;
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
