// Scales the sums between the commit and the wait.
#include "wgmma.cuh"

__global__ void product(const half* a, const half* b, float* out) {
    __shared__ alignas(128) half left[64 * 16], right[8 * 16];
    fill<64>(left, a), fill<8>(right, b);
    PROXY_FENCE;
    __syncthreads();
    float d[4] = {};
    FENCE;
    MULTIPLY(d, descriptor(left), descriptor(right));
    COMMIT;
#ifdef FIXED
    WAIT(0);
#endif
    for (int i = 0; i < 4; ++i)
        asm volatile("mul.f32 %0, %0, 0f40000000;" : "+f"(d[i]));  // FAULT: wgmma
    WAIT(0);
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}
