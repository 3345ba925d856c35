// Each lane passes a mask of itself and those behind it: the lanes of one sum pass different masks.
__global__ void sums(const int* x, int* out) {
    int lane = threadIdx.x;
#ifdef FIXED
    unsigned mask = 0xffffffff;
#else
    unsigned mask = 0xffffffff << (lane / 16 * 16);
#endif
    out[lane] = __reduce_add_sync(mask, x[lane]);  // FAULT: barrier
}
