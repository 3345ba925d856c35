// Shared memory seen from the cluster, which is one block here: mapa and getctarank.

typedef unsigned int u32;

extern "C" __global__ void memory_cluster(const u32* in, u32* out) {
    __shared__ u32 line[32];
    const u32 i = threadIdx.x;
    line[i] = in[i];
    __syncthreads();
    const u32 at = (u32)__cvta_generic_to_shared(&line[31 - i]);
    u32 mapped, rank, x;
    asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(mapped) : "r"(at));
    asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank) : "r"(mapped));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(mapped) : "memory");
    out[i] = x + rank;
}
