// Lane 0 says for its warp that the tile is there: what the other lanes wrote may come later.
#include <dotcu/tma.cuh>

__global__ void reversed(const int* x, int* out, int n) {
    __shared__ int tile[32];
    __shared__ dotcu::mbarrier there, taken;
    int t = threadIdx.x % 32;
    if (threadIdx.x == 0) there.init(1), taken.init(32);
    __syncthreads();
    auto arrive = [](dotcu::mbarrier& barrier) {
        asm volatile(
            "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(dotcu::shared_address(&barrier))
            : "memory");
    };
    for (int i = 0; i < n; ++i) {
        if (threadIdx.x < 32) {
            taken.wait(i % 2 ^ 1);
            tile[t] = x[32 * i + t];  // OTHER
#ifdef FIXED
            __syncwarp();
#endif
            if (t == 0) arrive(there);
        } else {
            there.wait(i % 2);
            out[32 * i + t] = tile[31 - t];  // FAULT: race
            arrive(taken);
        }
    }
}
