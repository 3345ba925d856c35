// The writers fence behind the barrier, where nothing orders that before the other warp's copy.
#include <dotcu/tma.cuh>

__global__ void shifted(const float* x, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float tile[8][32];
    int t = threadIdx.x;
    if (t < 32) {
        for (int row = 0; row < 8; ++row) tile[row][t] = 1 + x[row * 32 + t];  // OTHER
    }
#ifdef FIXED
    if (t < 32) dotcu::tma_fence();
    __syncthreads();
#else
    __syncthreads();
    if (t < 32) dotcu::tma_fence();
#endif
    if (t == 32) {
        dotcu::tma_store(out, tile, 0, 0);  // FAULT: proxy-fence
        dotcu::tma_commit();
        dotcu::tma_wait<0>();
    }
}
