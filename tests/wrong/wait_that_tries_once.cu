// Asks once whether the copy has arrived, and reads the tile whatever the answer is.
#include <dotcu/tma.cuh>

__global__ void total(const __grid_constant__ CUtensorMap x, float* out) {
    __shared__ alignas(128) float tile[8][32];
    __shared__ dotcu::mbarrier full;
    int t = threadIdx.x;
    if (t == 0) full.init(1);
    __syncthreads();
    if (t == 0) {
        full.arrive_expect(sizeof(tile));
        dotcu::tma_load(tile, x, full, 0, 0);  // OTHER
    }
#ifdef FIXED
    full.wait(0);
#else
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; }" ::"r"(
                     dotcu::shared_address(&full))
                 : "memory");
#endif
    float sum = 0;
    for (int row = 0; row < 8; ++row) sum += tile[row][t];  // FAULT: proxy-fence
    out[t] = sum;
}
