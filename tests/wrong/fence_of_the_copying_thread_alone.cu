// The thread that copies fences before the barrier: that joins its own writes alone.
#include <dotcu/tma.cuh>

__global__ void negate(const float* x, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float tile[8][32];
    int t = threadIdx.x;
    for (int row = 0; row < 8; ++row) tile[row][t] = -x[row * 32 + t];  // OTHER
#ifndef FIXED
    if (t == 0)
#endif
        dotcu::tma_fence();
    __syncthreads();
    if (t == 0) {
        dotcu::tma_store(out, tile, 0, 0);  // FAULT: proxy-fence
        dotcu::tma_commit();
        dotcu::tma_wait<0>();
    }
}
