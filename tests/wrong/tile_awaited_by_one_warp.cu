// One warp of the warpgroup waits for the tile that a copy brings; the others multiply it at once.
#include "wgmma.cuh"

__global__ void product(const __grid_constant__ CUtensorMap a, const half* b, float* out) {
    __shared__ alignas(1024) half left[64 * 64];
    __shared__ alignas(128) half right[8 * 16];
    __shared__ dotcu::mbarrier full;
    if (threadIdx.x == 0) full.init(1);
    fill<8>(right, b);
    PROXY_FENCE;
    __syncthreads();
    if (threadIdx.x == 0) {
        full.arrive_expect(sizeof(left));
        dotcu::tma_load(left, a, full, 0, 0);  // OTHER
    }
#ifdef FIXED
    full.wait(0);
#else
    if (threadIdx.x < 32) full.wait(0);
#endif
    float d[4] = {};
    FENCE;
    MULTIPLY(d, descriptor(left, 16, 1024, 1), descriptor(right));  // FAULT: proxy-fence
    COMMIT;
    WAIT(0);
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}
