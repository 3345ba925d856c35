// A is in registers, which the next step loads while the wgmma may still read them.
#include "wgmma.cuh"

__global__ void products(const unsigned* a, const half* b, float* out, int steps) {
    __shared__ alignas(128) half right[8 * 16];
    fill<8>(right, b);
    PROXY_FENCE;
    __syncthreads();
    float d[4] = {};
    unsigned left[4];
    for (int step = 0; step < steps; ++step) {
        for (int i = 0; i < 4; ++i) {
            asm volatile("ld.global.b32 %0, [%1];"
                         : "+r"(left[i])
                         : "l"(a + 512 * step + 4 * threadIdx.x + i));  // FAULT: wgmma
        }
        FENCE;
        MULTIPLY_REGISTERS(d, left, descriptor(right));
        COMMIT;
#ifdef FIXED
        WAIT(0);
#endif
    }
    WAIT(0);
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}
