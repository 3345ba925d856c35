// Clears a tile, then loads into it: which of the two writes comes last is open without a fence.
#include <dotcu/tma.cuh>

__global__ void first_rows(const __grid_constant__ CUtensorMap x, float* out) {
    __shared__ alignas(128) float tile[8][32];
    __shared__ dotcu::mbarrier arrived;
    int t = threadIdx.x;
    if (t == 0) arrived.init(1);
    for (int row = 0; row < 8; ++row) tile[row][t] = 0;  // OTHER
#ifdef FIXED
    dotcu::tma_fence();
#endif
    __syncthreads();
    if (t == 0) {
        arrived.arrive_expect(4 * 128);
        dotcu::tma_load(tile, x, arrived, 0, 0);  // FAULT: proxy-fence
    }
    arrived.wait(0);
    float sum = 0;
    for (int row = 0; row < 8; ++row) sum += tile[row][t];
    out[t] = sum;
}
