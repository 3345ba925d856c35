// Counts bytes in 8 bins of width 32; the last bin's upper edge falls into a ninth.
__global__ void count(const unsigned char* x, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
#ifdef FIXED
    int bin = x[i] / 32;
#else
    int bin = (x[i] + 1) / 32;
#endif
    atomicAdd(&bins[bin], 1);  // FAULT: out-of-bounds
}
