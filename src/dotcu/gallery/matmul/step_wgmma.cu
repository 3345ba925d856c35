// Step 4 of the ladder: TMA brings a tile of each matrix, and two warpgroups multiply 64 rows each
// by wgmma, straight from shared memory. Copies and products take turns.
//
// out = a @ b.T: a is (M, K), b is (N, K), out is (M, N); types of 16 bits, tiles of 128 x 128
// x 64.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <dotcu/vector.cuh>
#include <dotcu/wgmma.cuh>

#include "epilogue.cuh"

constexpr int BM = 128, BN = 128, BK = 64;

template <typename T>
__global__ void __launch_bounds__(256)
    matmul_wgmma(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                 T* out, int m, int n, int k) {
    __shared__ alignas(1024) T a_tile[BM][BK], b_tile[BN][BK];
    __shared__ dotcu::mbarrier full;
    const int row = blockIdx.y * BM, column = blockIdx.x * BN, warpgroup = threadIdx.x / 128;
    if (threadIdx.x == 0) full.init(1);
    __syncthreads();
    float d[BN / 2];
    const auto x = dotcu::k_major(a_tile[64 * warpgroup]), y = dotcu::k_major(b_tile);
    for (int step = 0; step * BK < k; ++step) {
        if (threadIdx.x == 0) {
            full.arrive_expect(sizeof(a_tile) + sizeof(b_tile));
            dotcu::tma_load(a_tile, a, full, row, step * BK);
            dotcu::tma_load(b_tile, b, full, column, step * BK);
        }
        full.wait(step % 2);
        dotcu::wgmma_fence(d);
#pragma unroll
        for (int i = 0; i < BK; i += 16)
            dotcu::wgmma<T>(d, x + 2 * i, y + 2 * i, step > 0 || i > 0);
        dotcu::wgmma_commit();
        dotcu::wgmma_wait<0>(d);
        __syncthreads();  // before the tiles are copied over
    }
    const int lane = threadIdx.x % 32, of_warp = row + 16 * (threadIdx.x / 32) + lane / 4;
#pragma unroll
    for (int i = 0; i < BN / 8; ++i) {
        const float sums[4] = {d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]};
        write_quad(out, m, n, of_warp, column + 8 * i + lane % 4 * 2, sums);
    }
}
