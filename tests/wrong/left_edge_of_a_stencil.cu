// out[i] = x[i - 1] + x[i + 1]; the left neighbour of element 0 does not exist.
__global__ void neighbours(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = i + 1 < n ? x[i + 1] : 0.0f;
#ifdef FIXED
    if (i > 0) sum += x[i - 1];
#else
    sum += x[i - 1];  // FAULT: out-of-bounds
#endif
    out[i] = sum;
}
