// Three warps come to a barrier that gathers two; the third waits for a fourth.
__global__ void exchange(const int* x, int* out) {
    __shared__ int tile[96];
    int i = threadIdx.x;
    tile[i] = x[i];
#ifdef FIXED
    asm volatile("bar.sync 1, 96;" ::: "memory");
#else
    asm volatile("bar.sync 1, 64;" ::: "memory");  // FAULT: deadlock
#endif
    out[i] = tile[i / 32 * 32 + (i + 1) % 32];
}
