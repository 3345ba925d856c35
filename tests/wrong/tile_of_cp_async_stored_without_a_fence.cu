// cp.async writes through the generic proxy: waiting for its groups is no fence for the bulk copy.
#include <dotcu/tma.cuh>

__global__ void copy(const float* x, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float tile[8][32];
    int t = threadIdx.x;
    for (int k = 0; k < 2; ++k) {
        unsigned to = dotcu::shared_address(&tile[4 * k][4 * t]);
        auto from = __cvta_generic_to_global(x + 128 * k + 4 * t);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));  // OTHER
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
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
