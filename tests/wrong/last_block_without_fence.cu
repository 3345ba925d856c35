// The block that comes last adds up the parts of all; the parts were not fenced.
__global__ void sum(const int* x, int* part, unsigned* done, int* out) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        part[blockIdx.x] = 2 * x[blockIdx.x];  // OTHER
#ifdef FIXED
        __threadfence();
#endif
        is_last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        int total = 0;
        for (int b = 0; b < gridDim.x; ++b) {
            total += part[b];  // FAULT: race
        }
        *out = total;
    }
}
