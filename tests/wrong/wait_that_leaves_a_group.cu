// Two groups; the wait leaves the later one, whose sums are stored.
#include "wgmma.cuh"

__global__ void products(const half* a, const half* b, float* out) {
    __shared__ alignas(128) half left[64 * 16], right[8 * 16];
    fill<64>(left, a), fill<8>(right, b);
    PROXY_FENCE;
    __syncthreads();
    float first[4] = {}, second[4] = {};
    FENCE;
    MULTIPLY(first, descriptor(left), descriptor(right));
    COMMIT;
    MULTIPLY(second, descriptor(left), descriptor(right));
    COMMIT;
#ifdef FIXED
    WAIT(0);
#else
    WAIT(1);
#endif
    for (int i = 0; i < 4; ++i) {
        out[4 * threadIdx.x + i] = first[i] + second[i];  // FAULT: wgmma
    }
}
