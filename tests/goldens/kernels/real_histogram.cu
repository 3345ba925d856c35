// A histogram: each block counts in shared memory, then adds its counts up.

extern "C" __global__ void real_histogram(const unsigned char* in, unsigned* bins, int n) {
    __shared__ unsigned counts[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) counts[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&counts[in[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        if (counts[i]) atomicAdd(&bins[i], counts[i]);
    }
}
