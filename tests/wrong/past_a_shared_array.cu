// Keeps 64 numbers and as many weights; the loop that fetches numbers runs on into the weights.
__global__ void weighted(const float* x, const float* w, float* out, int n) {
    __shared__ float row[64];
    __shared__ float weights[64];
    int i = threadIdx.x;
    weights[i] = w[i];
    __syncthreads();
#ifdef FIXED
    n = min(n, 64);
#endif
    for (int j = i; j < n; j += 64) {
        row[j] = x[j];  // FAULT: out-of-bounds
    }
    __syncthreads();
    out[i] = row[63 - i] * weights[i];
}
