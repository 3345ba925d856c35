// A stencil whose rim is loaded by the first threads, and zero outside of x.
__global__ void smooth(const float* x, float* out, int n) {
    __shared__ float tile[64 + 4];
    int first = blockIdx.x * 64;
    for (int j = threadIdx.x; j < 68; j += 64) {
        int at = first + j - 2;
        tile[j] = at >= 0 && at < n ? x[at] : 0.0f;
    }
    __syncthreads();
    int i = first + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int j = 0; j < 5; ++j) sum += tile[threadIdx.x + j];
    out[i] = sum;
}
