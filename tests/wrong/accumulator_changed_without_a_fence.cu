// Doubles the sums between two wgmma that add to them, with no wgmma.fence before the second.
#include "wgmma.cuh"

__global__ void products(const half* a, const half* b, float* out) {
    __shared__ alignas(128) half left[64 * 16], right[8 * 16];
    fill<64>(left, a), fill<8>(right, b);
    PROXY_FENCE;
    __syncthreads();
    float d[4] = {};
    FENCE;
    MULTIPLY(d, descriptor(left), descriptor(right));
    COMMIT;
    WAIT(0);
    for (int i = 0; i < 4; ++i) d[i] *= 2;
#ifdef FIXED
    FENCE;
#endif
    MULTIPLY(d, descriptor(left), descriptor(right));  // FAULT: wgmma
    COMMIT;
    WAIT(0);
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}
