// The last block sums what all of them wrote. One thread counts its block in, perhaps before the
// others have written.
__global__ void sum(const int* x, int* partial, unsigned* done, int* out) {
    __shared__ bool last;
    int i = blockIdx.x * 64 + threadIdx.x;
    partial[i] = 2 * x[i];  // OTHER
    __threadfence();
#ifdef FIXED
    __syncthreads();
#endif
    if (threadIdx.x == 0) last = atomicAdd(done, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    int total = 0;
    for (int b = 0; b < gridDim.x; ++b) total += partial[b * 64 + 63 - threadIdx.x];  // FAULT: race
    out[threadIdx.x] = total;
}
