// Fences the writes of global memory; the copy reads shared memory.
#include <dotcu/tma.cuh>

__global__ void halve(const float* x, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float tile[8][32];
    int t = threadIdx.x;
    for (int row = 0; row < 8; ++row) tile[row][t] = x[row * 32 + t] / 2;  // OTHER
#ifdef FIXED
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
    __syncthreads();
    if (t == 0) {
        dotcu::tma_store(out, tile, 0, 0);  // FAULT: proxy-fence
        dotcu::tma_commit();
        dotcu::tma_wait<0>();
    }
}
