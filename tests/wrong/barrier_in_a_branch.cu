// Half of the block waits in the branch, the other half behind it.
__global__ void halves(const int* x, int* out) {
    __shared__ int tile[64];
    int i = threadIdx.x;
    int sum = x[i];
    tile[i] = sum;
#ifdef FIXED
    __syncthreads();
    if (i < 32) sum += tile[i + 32];
#else
    if (i < 32) {
        __syncthreads();  // FAULT: barrier
        sum += tile[i + 32];
    }
#endif
    __syncthreads();  // OTHER
    out[i] = sum;
}
