// Reads through the read-only cache what other threads of the launch wrote: no barrier reaches that
// cache.
__global__ void reverse(const int* x, int* scratch, int* out) {
    int i = threadIdx.x;
    scratch[i] = x[i];  // OTHER
    __syncthreads();
#ifdef FIXED
    out[i] = scratch[63 - i];
#else
    out[i] = __ldg(scratch + 63 - i);  // FAULT: race
#endif
}
