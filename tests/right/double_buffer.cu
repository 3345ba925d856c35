// A prefix sum with two buffers and one barrier for each step.
__global__ void prefix(const int* x, int* out) {
    __shared__ int buffer[2][64];
    int i = threadIdx.x;
    int now = 0;
    buffer[now][i] = x[i];
    for (int step = 1; step < 64; step *= 2) {
        __syncthreads();
        int left = i >= step ? buffer[now][i - step] : 0;
        buffer[1 - now][i] = buffer[now][i] + left;
        now = 1 - now;
    }
    out[i] = buffer[now][i];
}
