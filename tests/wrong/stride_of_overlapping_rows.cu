// The stride of A's descriptor is half of the tile's: each 8 rows begin within the 8 before.
#include "wgmma.cuh"

__global__ void product(const half* a, const half* b, float* out) {
    __shared__ alignas(128) half left[64 * 16], right[8 * 16];
    fill<64>(left, a);
    fill<8>(right, b);
    PROXY_FENCE;
    __syncthreads();
#ifdef FIXED
    unsigned long long matrix = descriptor(left, 128, 256);
#else
    unsigned long long matrix = descriptor(left, 128, 128);
#endif
    float d[4] = {};
    FENCE;
    MULTIPLY(d, matrix, descriptor(right));  // FAULT: wgmma
    COMMIT;
    WAIT(0);
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}
