// The last block waits for the first one alone, and reads what the second one writes, too.
__global__ void gather(const int* x, int* partial, int* flags, int* out) {
    int i = threadIdx.x, b = blockIdx.x;
    if (b < 2) {
        partial[b * 32 + i] = x[i] + b;  // OTHER
        __threadfence();
        __syncthreads();
        if (i == 0) atomicExch(flags + b, 1);
        return;
    }
#ifdef FIXED
    for (int other = 0; other < 2; ++other)
#else
    for (int other = 0; other < 1; ++other)
#endif
        while (atomicAdd(flags + other, 0) == 0) {
        }
    __threadfence();
    __syncthreads();
    out[i] = partial[31 - i] + partial[63 - i];  // FAULT: race
}
