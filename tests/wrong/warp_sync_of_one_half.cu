// The lower half of a warp waits for itself, and the upper half reads what the lower half wrote.
__global__ void upper(const int* x, int* out) {
    __shared__ int slot[16];
    int lane = threadIdx.x;
    if (lane < 16) slot[lane] = x[lane];  // OTHER
#ifdef FIXED
    __syncwarp();
#else
    if (lane < 16) __syncwarp(0x0000ffff);
#endif
    if (lane >= 16) out[lane] = slot[lane - 16];  // FAULT: race
}
