// Waits for the first phase each time, which is over: the second tile is read while it arrives.
#include <dotcu/tma.cuh>

__global__ void sums(const __grid_constant__ CUtensorMap x, float* out) {
    __shared__ alignas(128) float tile[8][32];
    __shared__ dotcu::mbarrier arrived;
    int t = threadIdx.x;
    if (t == 0) arrived.init(1);
    float sum = 0;
    for (int step = 0; step < 2; ++step) {
        __syncthreads();
        if (t == 0) {
            arrived.arrive_expect(sizeof(tile));
            dotcu::tma_load(tile, x, arrived, 8 * step, 0);  // OTHER
        }
#ifdef FIXED
        arrived.wait(step);
#else
        arrived.wait(0);
#endif
        for (int row = 0; row < 8; ++row) {
            sum += tile[row][t];  // FAULT: proxy-fence
        }
    }
    out[t] = sum;
}
