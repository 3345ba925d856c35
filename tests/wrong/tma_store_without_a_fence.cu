// Doubles rows through shared memory; no thread fences its writes before the copy that reads them.
#include <dotcu/tma.cuh>

__global__ void twice(const float* x, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float tile[8][32];
    int t = threadIdx.x;
    for (int row = t / 32; row < 8; row += 2) {
        tile[row][t % 32] = 2 * x[row * 32 + t % 32];  // OTHER
    }
#ifdef FIXED
    dotcu::tma_fence();
#endif
    __syncthreads();
    if (t == 0) {
        dotcu::tma_store(out, tile, 0, 0);  // FAULT: proxy-fence
        dotcu::tma_commit();
        dotcu::tma_wait<0>();
    }
}
