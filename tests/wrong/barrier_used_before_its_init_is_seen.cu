// Threads use a barrier whose initialization by one of them nothing orders before that.
#include <dotcu/tma.cuh>

__global__ void copy(const float* x, float* out) {
    __shared__ dotcu::mbarrier empty;
    int t = threadIdx.x;
    if (t == 0) empty.init(32);  // OTHER
#ifdef FIXED
    __syncthreads();
#endif
    if (t > 0) empty.wait(1);  // FAULT: race
    out[t] = x[t];
}
