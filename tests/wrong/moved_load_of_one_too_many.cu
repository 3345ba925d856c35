// Sums what the first `warps` threads wrote, and one cell more. The compiler selects after it has
// loaded.
__global__ void partial_sums(int* out, int warps) {
    __shared__ int parts[8];
    if (threadIdx.x < warps) parts[threadIdx.x] = threadIdx.x;
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < 8; ++i)
#ifdef FIXED
        if (i < warps) sum += parts[i];
#else
        if (i <= warps) sum += parts[i];  // FAULT: uninitialized-read
#endif
    out[threadIdx.x] = sum;
}
