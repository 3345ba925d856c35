// Sums over rows of 8 lanes, by shuffles that stay within their 8.
__global__ void row_sums(const float* x, float* out) {
    int i = threadIdx.x;
    float value = x[i];
    for (int step = 4; step > 0; step /= 2) value += __shfl_down_sync(0xffffffff, value, step, 8);
    if (i % 8 == 0) out[i / 8] = value;
}
