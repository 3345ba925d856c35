#include <cooperative_groups.h>

// All blocks meet, in a launch that does not say so.
__global__ void meet(int* out) {
#ifdef FIXED
    __syncthreads();
#else
    cooperative_groups::this_grid().sync();  // FAULT: trap
#endif
    out[blockIdx.x * 32 + threadIdx.x] = 1;
}
