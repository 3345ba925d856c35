// Two buffers: the wait leaves two groups open, the older of which still reads the next buffer.
#include <dotcu/tma.cuh>

__global__ void four_tiles(const float* x, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float tiles[2][8][32];
    int t = threadIdx.x;
    for (int step = 0; step < 4; ++step) {
        if (t == 0) {
#ifdef FIXED
            dotcu::tma_wait<1>();
#else
            dotcu::tma_wait<2>();
#endif
        }
        __syncthreads();
        for (int row = 0; row < 8; ++row) {
            tiles[step % 2][row][t] = 5 * x[step * 256 + row * 32 + t];  // FAULT: proxy-fence
        }
        dotcu::tma_fence();
        __syncthreads();
        if (t == 0) {
            dotcu::tma_store(out, tiles[step % 2], 8 * step, 0);  // OTHER
            dotcu::tma_commit();
        }
    }
    if (t == 0) dotcu::tma_wait<0>();
}
