// Reverses a block by way of dynamic shared memory, of which the launch asks for one float a
// thread.
__global__ void reverse(const float* x, float* out) {
    extern __shared__ float tile[];
    int i = threadIdx.x;
    int n = blockDim.x;
    tile[i] = x[i];
    __syncthreads();
#ifdef FIXED
    out[i] = tile[n - 1 - i];
#else
    out[i] = tile[n - i];  // FAULT: out-of-bounds
#endif
}
