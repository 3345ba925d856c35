// The tensor map has a swizzle of 128 bytes, and the descriptor says 64.
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
        dotcu::tma_load(left, a, full, 0, 0);
    }
    full.wait(0);
#ifdef FIXED
    unsigned long long matrix = descriptor(left, 16, 1024, 1);
#else
    unsigned long long matrix = descriptor(left, 16, 1024, 2);
#endif
    float d[4] = {};
    FENCE;
    MULTIPLY(d, matrix, descriptor(right));  // FAULT: wgmma
    COMMIT;
    WAIT(0);
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}
