// The address of another block's shared memory, in a load that is for the block's own.
__global__ void peek(const int* x, int* out) {
    __shared__ int tile[32];
    unsigned there, rank, t = threadIdx.x;
    int found;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(there)
        : "r"((unsigned)__cvta_generic_to_shared(tile + 31 - t)), "r"(rank ^ 1));
    tile[t] = x[blockIdx.x * 32 + t];
    asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
#ifdef FIXED
    asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(found) : "r"(there) : "memory");
#else
    asm volatile("ld.shared::cta.s32 %0, [%1];"
                 : "=r"(found)
                 : "r"(there)  // FAULT: out-of-bounds
                 : "memory");
#endif
    out[blockIdx.x * 32 + t] = found;
    asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
}
