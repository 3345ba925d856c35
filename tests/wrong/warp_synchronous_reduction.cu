// The last steps of a reduction as they were written before Volta: a warp is taken to be in step.
__global__ void sum(const int* x, int* out) {
    __shared__ int part[64];
    int i = threadIdx.x;
    part[i] = x[i];
    part[i + 32] = x[i + 32];
    __syncwarp();
    for (int step = 32; step > 0; step /= 2) {
        int other = i < step ? part[i + step] : 0;  // FAULT: race
#ifdef FIXED
        __syncwarp();
#endif
        if (i < step) part[i] += other;  // OTHER
#ifdef FIXED
        __syncwarp();
#endif
    }
    if (i == 0) *out = part[0];
}
