// A chain of blocks: each adds its number to the last one's result. No fence before the flag.
__global__ void chain(const int* x, int* total, int* flag, int* ticket) {
    if (threadIdx.x != 0) return;
    int block = atomicAdd(ticket, 1);
    int before = 0;
    if (block > 0) {
        while (atomicAdd(&flag[block - 1], 0) == 0) {
        }
        __threadfence();
        before = total[block - 1];  // FAULT: race
    }
    total[block] = before + x[block];  // OTHER
#ifdef FIXED
    __threadfence();
#endif
    atomicExch(&flag[block], 1);
}
