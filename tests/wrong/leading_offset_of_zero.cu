// The leading offset of B's descriptor is left out, as if there were a swizzle: both halves of K
// are the first.
#include "wgmma.cuh"

__global__ void product(const half* a, const half* b, float* out) {
    __shared__ alignas(128) half left[64 * 16], right[8 * 16];
    fill<64>(left, a);
    fill<8>(right, b);
    PROXY_FENCE;
    __syncthreads();
#ifdef FIXED
    unsigned long long matrix = descriptor(right, 128);
#else
    unsigned long long matrix = descriptor(right, 0);
#endif
    float d[4] = {};
    FENCE;
    MULTIPLY(d, descriptor(left), matrix);  // FAULT: wgmma
    COMMIT;
    WAIT(0);
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}
