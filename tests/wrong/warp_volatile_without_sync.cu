// The end of a reduction as it was written before Volta: volatile shared memory, and a warp taken
// to be in step.
__global__ void sum(const int* x, int* out) {
    __shared__ int part[64];
    int i = threadIdx.x;
    volatile int* own = part;
    own[i] = x[i];
    own[i + 32] = x[i + 32];
    for (int step = 32; step > 0; step /= 2) {
#ifdef FIXED
        __syncwarp();
#endif
        int other = i < step ? own[i + step] : 0;  // FAULT: race
#ifdef FIXED
        __syncwarp();
#endif
        if (i < step) own[i] = own[i] + other;  // OTHER
    }
    if (i == 0) *out = own[0];
}
