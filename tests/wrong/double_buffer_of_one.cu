// Double buffering that reads the buffer which is being filled.
__global__ void prefix(const int* x, int* out) {
    __shared__ int buffer[2][64];
    int i = threadIdx.x;
    int now = 0;
    buffer[now][i] = x[i];
    __syncthreads();
    for (int step = 1; step < 64; step *= 2) {
#ifdef FIXED
        int next = 1 - now;
#else
        int next = now;
#endif
        int left = i >= step ? buffer[now][i - step] : 0;  // OTHER
        buffer[next][i] = buffer[now][i] + left;           // FAULT: race
        now = next;
        __syncthreads();
    }
    out[i] = buffer[now][i];
}
