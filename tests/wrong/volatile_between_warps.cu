// A sum in shared memory whose last steps rely on volatile, the first of them between two warps.
__global__ void sum(const int* x, int* out) {
    __shared__ volatile int sums[64];
    int i = threadIdx.x;
    sums[i] = x[i];  // OTHER
#ifdef FIXED
    __syncthreads();
#endif
    int total = 0;
    if (i < 32) total = sums[i] + sums[i + 32];  // FAULT: race
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffff, total, step);
    if (i == 0) out[0] = total;
}
