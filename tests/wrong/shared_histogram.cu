// A histogram in shared memory, counted without atomics.
__global__ void histogram(const unsigned char* x, int* bins) {
    __shared__ int count[16];
    int i = threadIdx.x;
    if (i < 16) count[i] = 0;
    __syncthreads();
#ifdef FIXED
    atomicAdd(&count[x[i] % 16], 1);
#else
    count[x[i] % 16] += 1;  // FAULT: race, OTHER
#endif
    __syncthreads();
    if (i < 16) bins[i] = count[i];
}
