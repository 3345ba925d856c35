// Reads what it stored by TMA, once the copy has read its source: its writes may come later.
#include <dotcu/tma.cuh>

__global__ void check(const float* x, float* y, const __grid_constant__ CUtensorMap map,
                      float* out) {
    __shared__ alignas(128) float tile[8][32];
    int t = threadIdx.x;
    for (int row = 0; row < 8; ++row) tile[row][t] = 2 * x[row * 32 + t];
    dotcu::tma_fence();
    __syncthreads();
    if (t == 0) {
        dotcu::tma_store(map, tile, 0, 0);  // OTHER
        dotcu::tma_commit();
#ifdef FIXED
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#else
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
    }
    __syncthreads();
    out[t] = y[t] + y[224 + t];  // FAULT: proxy-fence
}
