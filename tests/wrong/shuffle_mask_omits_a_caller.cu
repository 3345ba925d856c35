// All 32 lanes shuffle, and the mask names 31 of them.
__global__ void broadcast(const int* x, int* out) {
    int value = x[threadIdx.x];
#ifdef FIXED
    out[threadIdx.x] = __shfl_sync(0xffffffff, value, 0);
#else
    out[threadIdx.x] = __shfl_sync(0x7fffffff, value, 0);  // FAULT: barrier
#endif
}
