// Two blocks of 64 threads for 100 numbers, and no thread that asks whether its number exists.
__global__ void negate(int* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
    if (i < n)
#endif
        x[i] = -x[i];  // FAULT: out-of-bounds
}
