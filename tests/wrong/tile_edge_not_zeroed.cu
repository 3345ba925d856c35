// Sums each window of 3 by way of a tile with a rim; nobody writes the rim.
__global__ void window(const float* x, float* out) {
    __shared__ float tile[34];
    int i = threadIdx.x;
    tile[i + 1] = x[i];
#ifdef FIXED
    if (i == 0) tile[0] = tile[33] = 0.0f;
#endif
    __syncthreads();
    float sum = tile[i + 1];
    sum += tile[i];      // FAULT: uninitialized-read
    sum += tile[i + 2];  // FAULT: uninitialized-read
    out[i] = sum;
}
