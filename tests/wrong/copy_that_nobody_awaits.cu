// The producer's loop goes one tile further than the consumers': the last copy is still on its way
// when the block ends.
#include <dotcu/tma.cuh>

__global__ void doubled(const __grid_constant__ CUtensorMap x, float* out, int tiles) {
    __shared__ alignas(128) float stage[2][8][32];
    __shared__ dotcu::mbarrier full[2];
    int t = threadIdx.x;
    if (t == 0) full[0].init(1), full[1].init(1);
    __syncthreads();
#ifdef FIXED
    int ahead = tiles;
#else
    int ahead = tiles + 1;
#endif
    for (int i = 0; i < ahead; ++i) {
        if (t == 0) {
            full[i % 2].arrive_expect(sizeof(stage[0]));
            dotcu::tma_load(stage[i % 2], x, full[i % 2], 8 * i, 0);  // FAULT: exited-block
        }
        if (i == tiles) return;
        full[i % 2].wait(i / 2 % 2);
        for (int row = 0; row < 8; ++row) out[(8 * i + row) * 32 + t] = 2 * stage[i % 2][row][t];
        __syncthreads();
    }
}
