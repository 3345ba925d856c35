// A histogram of 4 bins for each thread, in local memory; the value is not brought into 0 to 3.
__global__ void count(const int* x, int* out, int n) {
    int bins[4] = {0, 0, 0, 0};
    for (int j = 0; j < n; ++j) {
        int value = x[threadIdx.x * n + j];
#ifdef FIXED
        bins[value & 3] += 1;
#else
        bins[value] += 1;  // FAULT: out-of-bounds
#endif
    }
    for (int b = 0; b < 4; ++b) out[threadIdx.x * 4 + b] = bins[b];
}
