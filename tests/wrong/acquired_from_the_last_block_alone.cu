// The last block waits for the block before it alone, and reads what all of them write: each has a
// flag of its own.
__global__ void gather(const int* x, int* partial, int* flags, int* out) {
    int i = threadIdx.x, b = blockIdx.x, last = gridDim.x - 1;
    if (b < last) {
        partial[b * 32 + i] = x[i] + b;  // OTHER
        __threadfence();
        __syncthreads();
        if (i == 0) atomicExch(flags + b, 1);
        return;
    }
#ifdef FIXED
    for (int other = 0; other < last; ++other)
#else
    for (int other = last - 1; other < last; ++other)
#endif
        while (atomicAdd(flags + other, 0) == 0) {
        }
    __threadfence();
    __syncthreads();
    int sum = 0;
    for (int other = 0; other < last; ++other) sum += partial[other * 32 + i];  // FAULT: race
    out[i] = sum;
}
