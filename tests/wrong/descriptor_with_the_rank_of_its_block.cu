// In the second block of a cluster the address in the descriptor has a bit that reaches into its
// leading offset.
#include "wgmma.cuh"

__global__ void __cluster_dims__(2) product(const half* a, const half* b, float* out) {
    __shared__ alignas(128) half left[64 * 16], right[8 * 16], unused[1024];
    fill<64>(left, a), fill<8>(right, b);
    for (int i = threadIdx.x; i < 1024; i += 128) unused[i] = 0;
    PROXY_FENCE;
    __syncthreads();
    unsigned long long at = dotcu::shared_address(left);
#ifdef FIXED
    at &= 0x3FFFF;
#endif
    float d[4] = {};
    FENCE;
    MULTIPLY(d, at >> 4 | 8ull << 16 | 16ull << 32, descriptor(right));  // FAULT: wgmma
    COMMIT;
    WAIT(0);
    if (blockIdx.x == 1)
        for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}
