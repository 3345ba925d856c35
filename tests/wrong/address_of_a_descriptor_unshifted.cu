// The address in the descriptor is in bytes, and reaches into its other fields.
#include "wgmma.cuh"

__global__ void product(const half* a, const half* b, float* out) {
    __shared__ alignas(128) half left[64 * 16], right[8 * 16], unused[16 * 1024];
    fill<64>(left, a), fill<8>(right, b);
    unused[threadIdx.x] = 0;
    PROXY_FENCE;
    __syncthreads();
    unsigned long long at = dotcu::shared_address(left);
#ifdef FIXED
    at >>= 4;
#else
    at |= 1 << 14;
#endif
    float d[4] = {};
    FENCE;
    MULTIPLY(d, at | 8ull << 16 | 16ull << 32, descriptor(right));  // FAULT: wgmma
    COMMIT;
    WAIT(0);
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}
