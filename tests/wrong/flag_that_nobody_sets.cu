// Block 1 waits for block 0, which sets the flag of another block.
__global__ void wait(volatile int* flag, int* out) {
    if (blockIdx.x == 0) {
#ifdef FIXED
        flag[1] = 1;
#else
        flag[2] = 1;
#endif
    } else {
        while (flag[blockIdx.x] == 0) {  // FAULT: deadlock
        }
    }
    out[blockIdx.x] = 1;
}
