// Half a warp shuffles and waits for the other half, which waits at the barrier.
__global__ void sum_of_16(const int* x, int* out) {
    int lane = threadIdx.x;
    int value = x[lane];
#ifdef FIXED
    unsigned mask = 0x0000ffff;
#else
    unsigned mask = 0xffffffff;
#endif
    if (lane < 16) {
        for (int step = 8; step > 0; step /= 2) {
            value += __shfl_xor_sync(mask, value, step, 16);  // FAULT: deadlock
        }
    }
    __syncthreads();
    out[lane] = value;
}
