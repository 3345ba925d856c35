// Two buffers of a block change places behind each barrier, which orders the reads before a fence,
// too.
__global__ void turn(int* x, int* y, int n, int rounds) {
    for (int round = 0; round < rounds; ++round) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[(i + 1) % n];
        __threadfence();
        __syncthreads();
        int* other = x;
        x = y;
        y = other;
    }
}
