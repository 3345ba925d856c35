// Tiles of a matrix-vector product; the next tile is brought in while others read this one.
__global__ void mat_vec(const float* a, const float* x, float* out, int n) {
    __shared__ float tile[64];
    int row = threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < n; k += 64) {
        tile[row] = x[k + row];  // FAULT: race
        __syncthreads();
        for (int j = 0; j < 64; ++j) {
            sum += a[row * n + k + j] * tile[j];  // OTHER
        }
#ifdef FIXED
        __syncthreads();
#endif
    }
    out[row] = sum;
}
