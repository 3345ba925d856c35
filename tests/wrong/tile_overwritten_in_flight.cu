// Fills the tile for the next product while this one may still read it.
#include "wgmma.cuh"

__global__ void products(const half* a, const half* b, float* out, int steps) {
    __shared__ alignas(128) half left[64 * 16], right[8 * 16];
    fill<8>(right, b);
    float d[4] = {};
    for (int step = 0; step < steps; ++step) {
        for (int i = threadIdx.x; i < 64 * 16; i += 128) {
            left[place(i / 16, i % 16)] = a[1024 * step + i];  // FAULT: wgmma
        }
        PROXY_FENCE;
        __syncthreads();
        FENCE;
        MULTIPLY(d, descriptor(left), descriptor(right));
        COMMIT;
#ifdef FIXED
        WAIT(0);
#endif
        __syncthreads();
    }
    WAIT(0);
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}
