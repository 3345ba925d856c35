// Two warps of a warpgroup multiply, and the others do not.
#include "wgmma.cuh"

__global__ void product(const half* a, const half* b, float* out) {
    __shared__ alignas(128) half left[64 * 16], right[8 * 16];
    fill<64>(left, a), fill<8>(right, b);
    PROXY_FENCE;
    __syncthreads();
    float d[4] = {};
    FENCE;
#ifdef FIXED
    int last = 128;
#else
    int last = 64;
#endif
    if (threadIdx.x < last) {
        MULTIPLY(d, descriptor(left), descriptor(right));  // FAULT: wgmma
    }
    COMMIT;
    WAIT(0);
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}
