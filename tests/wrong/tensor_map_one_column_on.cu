// Shifts each row by one, by a store of the tile one column on: 4 bytes, and TMA takes whole 16.
#include <dotcu/tma.cuh>

__global__ void shift(const float* x, const __grid_constant__ CUtensorMap out, int columns) {
    __shared__ alignas(128) float tile[8][32];
    int t = threadIdx.x, column = 32 * blockIdx.x;
#ifdef FIXED
    int from = column + t - 1;
#else
    int from = column + t;
#endif
    for (int row = 0; row < 8; ++row) tile[row][t] = from < 0 ? 0 : x[row * columns + from];
    dotcu::tma_fence();
    __syncthreads();
    if (t == 0) {
#ifdef FIXED
        dotcu::tma_store(out, tile, 0, column);
#else
        dotcu::tma_store(out, tile, 0, column + 1);  // FAULT: misaligned
#endif
        dotcu::tma_commit();
        dotcu::tma_wait<0>();
    }
}
