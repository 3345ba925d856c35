// Passes a sum to the neighbour before the wait, by way of a copy of the accumulator's register.
#include "wgmma.cuh"

__global__ void product(const half* a, const half* b, float* out) {
    __shared__ alignas(128) half left[64 * 16], right[8 * 16];
    fill<64>(left, a);
    fill<8>(right, b);
    PROXY_FENCE;
    __syncthreads();
    float d[4] = {};
    FENCE;
    MULTIPLY(d, descriptor(left), descriptor(right));
    COMMIT;
#ifdef FIXED
    WAIT(0);
#endif
    float next = __shfl_xor_sync(~0u, d[0], 4);  // FAULT: wgmma
    WAIT(0);
    out[4 * threadIdx.x] = d[0] + next;
    for (int i = 1; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}
