// Each half of a warp waits for itself, and then reads what the other half wrote.
__global__ void swap_halves(const int* x, int* out) {
    __shared__ int slot[32];
    int lane = threadIdx.x;
    slot[lane] = x[lane];  // OTHER
#ifdef FIXED
    __syncwarp();
#else
    if (lane < 16) {
        __syncwarp(0x0000ffff);
    } else {
        __syncwarp(0xffff0000);
    }
#endif
    out[lane] = slot[lane ^ 16];  // FAULT: race
}
