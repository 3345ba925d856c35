// Waits for all groups; the copy is in none yet.
#include <dotcu/tma.cuh>

__global__ void two_tiles(const float* x, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float tile[8][32];
    int t = threadIdx.x;
    for (int step = 0; step < 2; ++step) {
        for (int row = 0; row < 8; ++row) {
            tile[row][t] = 1 - x[step * 256 + row * 32 + t];  // FAULT: proxy-fence
        }
        dotcu::tma_fence();
        __syncthreads();
        if (t == 0) {
            dotcu::tma_store(out, tile, 8 * step, 0);  // OTHER
#ifdef FIXED
            dotcu::tma_commit();
#endif
            dotcu::tma_wait<0>();
        }
        __syncthreads();
    }
}
