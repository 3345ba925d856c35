// Blocks add into one counter, with atomics that hold within a block only.
__global__ void count_odd(const int* x, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || x[i] % 2 == 0) return;
#ifdef FIXED
    atomicAdd(count, 1);
#else
    atomicAdd_block(count, 1);  // FAULT: race, OTHER
#endif
}
