// Three warps read the total; only the first and the third meet the fourth, which changes it.
__global__ void totals(const int* x, int* out) {
    __shared__ int total;
    int i = threadIdx.x, warp = i / 32;
    if (i == 0) total = x[0];
    __syncthreads();
    if (warp < 3) out[i] = total + x[i];  // OTHER
#ifdef FIXED
    asm volatile("bar.sync 1, 128;" ::: "memory");
#else
    if (warp != 1) asm volatile("bar.sync 1, 96;" ::: "memory");
#endif
    if (i == 96) total = x[1];  // FAULT: race
}
