// The consumers say that a stage is free before they have waited for the wgmma that reads it.
#include "wgmma.cuh"

__global__ void products(const __grid_constant__ CUtensorMap a, const half* b, float* out,
                         int steps) {
    __shared__ alignas(1024) half left[2][64 * 64];
    __shared__ alignas(128) half right[8 * 16];
    __shared__ dotcu::mbarrier full[2], empty[2];
    int t = threadIdx.x;
    if (t == 0) {
        for (int s = 0; s < 2; ++s) full[s].init(1), empty[s].init(128);
    }
    fill<8>(right, b);
    PROXY_FENCE;
    __syncthreads();
    float d[4] = {};
    for (int i = 0; i < steps; ++i) {
        int s = i % 2, phase = i / 2 % 2;
        if (t == 128) {
            empty[s].wait(phase ^ 1);
            full[s].arrive_expect(sizeof(left[s]));
            dotcu::tma_load(left[s], a, full[s], 64 * i, 0);  // FAULT: wgmma
        } else if (t < 128) {
            full[s].wait(phase);
            FENCE;
            MULTIPLY(d, descriptor(left[s], 16, 1024, 1), descriptor(right));
            COMMIT;
#ifdef FIXED
            WAIT(0);
#endif
            unsigned at = dotcu::shared_address(&empty[s]);
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
            WAIT(0);
        }
    }
    if (t < 128)
        for (int i = 0; i < 4; ++i) out[4 * t + i] = d[i];
}
