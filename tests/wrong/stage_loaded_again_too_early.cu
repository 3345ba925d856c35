// A producer warp refills a stage when its copy has arrived, not when the consumers have read it.
#include <dotcu/tma.cuh>

__global__ void totals(const __grid_constant__ CUtensorMap x, float* out, int tiles) {
    __shared__ alignas(128) float stages[2][8][32];
    __shared__ dotcu::mbarrier full[2], empty[2];
    int t = threadIdx.x;
    if (t == 0) {
        for (int s = 0; s < 2; ++s) full[s].init(1), empty[s].init(32);
    }
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < tiles; ++i) {
        int s = i % 2, phase = i / 2 % 2;
        if (t == 32) {
#ifdef FIXED
            empty[s].wait(phase ^ 1);
#else
            full[s].wait(phase ^ 1);
#endif
            full[s].arrive_expect(sizeof(stages[s]));
            dotcu::tma_load(stages[s], x, full[s], 8 * i, 0);  // FAULT: proxy-fence, OTHER
        } else if (t < 32) {
            full[s].wait(phase);
            for (int row = 0; row < 8; ++row) {
                sum += stages[s][row][t];  // FAULT: proxy-fence, OTHER
            }
            unsigned at = dotcu::shared_address(&empty[s]);
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
        }
    }
    if (t < 32) out[t] = sum;
}
