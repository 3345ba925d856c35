// The first kernel phase leaves odd elements out; the second phase reads all.
__global__ void smooth(const float* x, float* scratch, float* out, int n) {
    int i = threadIdx.x;
#ifdef FIXED
    scratch[i] = 3 * x[i];
#else
    if (i % 2 == 0) scratch[i] = 3 * x[i];
#endif
    __syncthreads();
    out[i] = scratch[n - 1 - i];  // FAULT: uninitialized-read
}
