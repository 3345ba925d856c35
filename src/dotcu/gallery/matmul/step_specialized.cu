// Step 5 of the ladder: a third warpgroup only copies, into a ring of four stages, and gives its
// registers to the other two, so that copies never wait for products, and a tile has 128 x 256
// sums.
//
// out = a @ b.T: a is (M, K), b is (N, K), out is (M, N); types of 16 bits, tiles of 128 x 256
// x 64.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <dotcu/pipeline.cuh>
#include <dotcu/vector.cuh>
#include <dotcu/wgmma.cuh>

#include "epilogue.cuh"

constexpr int BM = 128, BN = 256, BK = 64, STAGES = 4;

template <typename T>
struct alignas(1024) Stage {
    T a[BM][BK], b[BN][BK];
};

template <typename T>
__global__ void __launch_bounds__(384, 1)
    matmul_specialized(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                       T* out, int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ dotcu::pipeline<STAGES> pipe;
    auto* stages = reinterpret_cast<Stage<T>*>(memory);
    const int row = blockIdx.y * BM, column = blockIdx.x * BN, warpgroup = threadIdx.x / 128;
    if (threadIdx.x == 0) pipe.init(1, 2);
    __syncthreads();
    dotcu::ring<STAGES> at;
    if (warpgroup == 2) {
        dotcu::registers_down<40>();
        if (threadIdx.x % 128 == 0) {
            for (int i = 0; i < k; i += BK, at.next()) {
                dotcu::mbarrier& full = pipe.acquire(at);
                full.arrive_expect(sizeof(Stage<T>));
                dotcu::tma_load(stages[at.stage].a, a, full, row, i);
                dotcu::tma_load(stages[at.stage].b, b, full, column, i);
            }
        }
    } else {
        dotcu::registers_up<232>();
        float d[BN / 2];
        for (int step = 0; step < k; step += BK, at.next()) {
            pipe.wait(at);
            const auto x = dotcu::k_major(stages[at.stage].a[64 * warpgroup]);
            const auto y = dotcu::k_major(stages[at.stage].b);
            dotcu::wgmma_fence(d);
#pragma unroll
            for (int i = 0; i < BK; i += 16)
                dotcu::wgmma<T>(d, x + 2 * i, y + 2 * i, step > 0 || i > 0);
            dotcu::wgmma_commit();
            dotcu::wgmma_wait<0>(d);
            if (threadIdx.x % 128 == 0) pipe.release(at);
        }
        const int lane = threadIdx.x % 32, of_warp = row + 16 * (threadIdx.x / 32) + lane / 4;
#pragma unroll
        for (int i = 0; i < BN / 8; ++i) {
            const float sums[4] = {d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]};
            write_quad(out, m, n, of_warp, column + 8 * i + lane % 4 * 2, sums);
        }
    }
}
