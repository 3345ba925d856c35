// Groups belong to threads: thread 32 waits for its own, of which there are none.
#include <dotcu/tma.cuh>

__global__ void two_tiles(const float* x, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float tile[8][32];
    int t = threadIdx.x;
#ifdef FIXED
    int waits = 0;
#else
    int waits = 32;
#endif
    for (int step = 0; step < 2; ++step) {
        for (int row = t / 32; row < 8; row += 2) {
            int at = step * 256 + row * 32 + t % 32;
            tile[row][t % 32] = 4 * x[at];  // FAULT: proxy-fence
        }
        dotcu::tma_fence();
        __syncthreads();
        if (t == 0) {
            dotcu::tma_store(out, tile, 8 * step, 0);  // OTHER
            dotcu::tma_commit();
        }
        if (t == waits) dotcu::tma_wait<0>();
        __syncthreads();
    }
    if (t == 0) dotcu::tma_wait<0>();
}
