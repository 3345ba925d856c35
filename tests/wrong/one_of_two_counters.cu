// Blocks of two kinds count themselves at two counters; the last block waits at one and reads of
// both.
__global__ void join(const int* x, int* data, int* counters, int* out) {
    int i = threadIdx.x, b = blockIdx.x, last = gridDim.x - 1;
    if (b < last) {
        data[b * 32 + i] = x[i] * (b + 1);  // OTHER
        __syncthreads();
        __threadfence();
        if (i == 0) atomicAdd(counters + b % 2, 1);
        return;
    }
    if (i == 0) {
#ifdef FIXED
        while (atomicAdd(counters, 0) < last / 2) {
        }
#endif
        while (atomicAdd(counters + 1, 0) < last / 2) {
        }
        __threadfence();
    }
    __syncthreads();
    for (int other = 0; other < last; ++other)
        out[other * 32 + i] = data[other * 32 + 31 - i];  // FAULT: race
}
