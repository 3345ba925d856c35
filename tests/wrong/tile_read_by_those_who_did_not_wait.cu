// One warp waits for the tile; the other goes on at once.
#include <dotcu/tma.cuh>

__global__ void sums(const __grid_constant__ CUtensorMap x, float* out) {
    __shared__ alignas(128) float tile[8][32];
    __shared__ dotcu::mbarrier arrived;
    int t = threadIdx.x;
    if (t == 0) arrived.init(1);
    __syncthreads();
    if (t == 0) {
        arrived.arrive_expect(sizeof(tile));
        dotcu::tma_load(tile, x, arrived, 0, 0);  // OTHER
    }
#ifndef FIXED
    if (t < 32)
#endif
        arrived.wait(0);
    float sum = 0;
    for (int row = t / 32; row < 8; row += 2) {
        sum += tile[row][t % 32];  // FAULT: proxy-fence
    }
    out[t] = sum;
}
