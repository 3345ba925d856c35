// Four blocks read what the first one overwrites; it waits for three of them.
__global__ void update(int* data, int* flags, int* out) {
    int i = threadIdx.x, b = blockIdx.x;
    if (b > 0) {
        out[b * 32 + i] = data[i];  // OTHER
        __syncthreads();
        __threadfence();
        if (i == 0) atomicExch(flags + b, 1);
        return;
    }
    if (i > 0 && i < gridDim.x) {
#ifndef FIXED
        if (i != 2)
#endif
            while (atomicAdd(flags + i, 0) == 0) {
            }
        __threadfence();
    }
    __syncthreads();
    data[i] = -1;  // FAULT: race
}
