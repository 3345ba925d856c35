// A chain of blocks, ordered by st.release and ld.acquire in place of fences.
__global__ void chain(const int* x, int* total, int* flag, int* ticket) {
    if (threadIdx.x != 0) return;
    int block = atomicAdd(ticket, 1);
    int before = 0;
    if (block > 0) {
        int ready = 0;
        while (!ready) {
            asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                         : "=r"(ready)
                         : "l"(&flag[block - 1])
                         : "memory");
        }
        before = total[block - 1];
    }
    total[block] = before + x[block];
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(&flag[block]), "r"(1) : "memory");
}
