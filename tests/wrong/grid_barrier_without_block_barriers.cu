// A barrier of all blocks by hand: one thread of each counts in and waits for the count.
__global__ void turn(const int* x, int* scratch, unsigned* count, int* out) {
    int i = blockIdx.x * 32 + threadIdx.x, n = gridDim.x * 32;
    scratch[i] = x[i];  // OTHER
#ifdef FIXED
    __syncthreads();
#endif
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(count, 1u);
        while (atomicAdd(count, 0u) < gridDim.x) {
        }
        __threadfence();
    }
    __syncthreads();
    out[i] = scratch[n - 1 - i];  // FAULT: race
}
