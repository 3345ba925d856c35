// The compiler unrolls both loops, loads every cell, and selects afterwards. In the source no
// thread reads a cell that nothing wrote, or that another thread writes meanwhile.
__global__ void partial_sums(int* out, int warps) {
    __shared__ int parts[8], cells[8];
    if (threadIdx.x < warps) parts[threadIdx.x] = threadIdx.x;
    if (threadIdx.x < 8) cells[threadIdx.x] = 10;
    __syncthreads();
    int sum = 0;
    if (threadIdx.x < 32) {
        for (int i = 0; i < 8; ++i)
            if (i < warps) sum += parts[i];
        for (int i = 0; i < 8; ++i)
            if (i < warps) sum = max(sum, cells[i]);
    } else if (threadIdx.x - 32 + warps < 8) {
        cells[threadIdx.x - 32 + warps] = 1;
    }
    out[threadIdx.x] = sum;
}
