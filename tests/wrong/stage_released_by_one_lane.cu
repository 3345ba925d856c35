// Lane 0 gives the stage back for its warp, which may not have read it yet.
#include <dotcu/tma.cuh>

__global__ void doubled(const __grid_constant__ CUtensorMap x, float* out, int tiles) {
    __shared__ alignas(128) float stage[8][32];
    __shared__ dotcu::mbarrier full, empty;
    int t = threadIdx.x % 32;
    if (threadIdx.x == 0) full.init(1), empty.init(1);
    __syncthreads();
    for (int i = 0; i < tiles; ++i) {
        if (threadIdx.x == 32) {
            empty.wait(i % 2 ^ 1);
            full.arrive_expect(sizeof(stage));
            dotcu::tma_load(stage, x, full, 8 * i, 0);  // FAULT: proxy-fence
        }
        if (threadIdx.x >= 32) continue;
        full.wait(i % 2);
        float column[8];
        for (int row = 0; row < 8; ++row) column[row] = stage[row][t];  // OTHER
#ifdef FIXED
        __syncwarp();
#endif
        if (t == 0)
            asm volatile(
                "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(dotcu::shared_address(&empty))
                : "memory");
        for (int row = 0; row < 8; ++row) out[(8 * i + row) * 32 + t] = 2 * column[row];
    }
}
