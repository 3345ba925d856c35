// The box has half as many rows as the tile, and the barrier waits for the bytes of the tile.
#include <dotcu/tma.cuh>

__global__ void upper(const __grid_constant__ CUtensorMap x, float* out) {
    __shared__ alignas(128) float tile[8][32];
    __shared__ dotcu::mbarrier arrived;
    int t = threadIdx.x;
    if (t == 0) arrived.init(1);
    __syncthreads();
    if (t == 0) {
#ifdef FIXED
        arrived.arrive_expect(sizeof(tile) / 2);
#else
        arrived.arrive_expect(sizeof(tile));
#endif
        dotcu::tma_load(tile, x, arrived, 0, 0);
    }
    arrived.wait(0);  // FAULT: deadlock
    out[t] = tile[0][t] + tile[3][t];
}
