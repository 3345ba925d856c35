// All lanes of a warp ask for the same store of a box: in step, they issue it once, after what all
// of them wrote.
#include <dotcu/tma.cuh>

__global__ void doubled(const float* x, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float tile[2][8][32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int row = 0; row < 8; ++row) tile[warp][row][lane] = 2 * x[32 * (8 * warp + row) + lane];
    dotcu::tma_fence();
    dotcu::tma_store(out, tile[warp], 8 * warp, 0);
    dotcu::tma_commit();
    dotcu::tma_wait<0>();
}
