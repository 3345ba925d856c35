// Each warp gives its own rows of A, where all four have to give the same matrix.
#include "wgmma.cuh"

__global__ void product(const half* a, const half* b, float* out) {
    __shared__ alignas(128) half left[64 * 16], right[8 * 16];
    fill<64>(left, a), fill<8>(right, b);
    PROXY_FENCE;
    __syncthreads();
#ifdef FIXED
    half* rows = left;
#else
    half* rows = left + threadIdx.x / 32 * 16 * 16;
#endif
    float d[4] = {};
    FENCE;
    MULTIPLY(d, descriptor(rows), descriptor(right));  // FAULT: wgmma
    COMMIT;
    WAIT(0);
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}
