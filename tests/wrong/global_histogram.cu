// A histogram in global memory, counted without atomics, by several blocks.
__global__ void histogram(const unsigned char* x, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
#ifdef FIXED
    atomicAdd(&bins[x[i] % 16], 1);
#else
    bins[x[i] % 16] += 1;  // FAULT: race, OTHER
#endif
}
