// The special registers of clusters, in a launch of clusters of (2, 2, 1) blocks.
__global__ void cluster_registers(unsigned* out) {
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned* o = out + 20 * block;
    if (threadIdx.x) return;
#define READ(at, name) asm volatile("mov.u32 %0, %%" name ";" : "=r"(o[at]))
    READ(0, "clusterid.x");
    READ(1, "clusterid.y");
    READ(2, "clusterid.z");
    READ(3, "nclusterid.x");
    READ(4, "nclusterid.y");
    READ(5, "nclusterid.z");
    READ(6, "cluster_ctaid.x");
    READ(7, "cluster_ctaid.y");
    READ(8, "cluster_ctaid.z");
    READ(9, "cluster_nctaid.x");
    READ(10, "cluster_nctaid.y");
    READ(11, "cluster_nctaid.z");
    READ(12, "cluster_ctarank");
    READ(13, "cluster_nctarank");
    READ(14, "ctaid.x");
    READ(15, "ctaid.y");
    READ(16, "ctaid.z");
    READ(17, "nctaid.x");
    asm volatile("{ .reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p; }"
                 : "=r"(o[18]));
    o[19] = 1;
}
