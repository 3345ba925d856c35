// The block after the last one of the cluster: its rank is not taken modulo their number.
__global__ void ring(const int* x, int* out) {
    __shared__ int box;
    unsigned rank, blocks, there, found, at = static_cast<unsigned>(__cvta_generic_to_shared(&box));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    if (threadIdx.x == 0) box = x[blockIdx.x];
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#ifdef FIXED
    unsigned next = (rank + 1) % blocks;
#else
    unsigned next = rank + 1;
#endif
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(next));
    asm volatile("ld.shared::cluster.u32 %0, [%1];"
                 : "=r"(found)
                 : "r"(there)  // FAULT: out-of-bounds
                 : "memory");
    if (threadIdx.x == 0) out[blockIdx.x] = found;
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
