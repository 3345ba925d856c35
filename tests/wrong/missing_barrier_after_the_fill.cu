// Reverses a block by way of shared memory, without waiting until it is full.
__global__ void reverse(const float* x, float* out) {
    __shared__ float tile[128];
    int i = threadIdx.x;
    tile[i] = x[i];  // OTHER
#ifdef FIXED
    __syncthreads();
#endif
    out[i] = tile[127 - i];  // FAULT: race
}
