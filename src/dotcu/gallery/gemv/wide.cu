// gemv on Hopper, for weights of the dtype of x: out = x @ weight.T + bias, for 64 rows of x at
// most.
//
// Idea: a product of matrices that reads its weights once. wgmma takes both factors out of shared
// memory as TMA leaves them there: 64 rows of weights as those of A, and all rows of x, up to
// `columns`, as the columns of B. So the last warp copies some stages ahead, and the others wait
// for a stage, start four instructions and free it: 64 rows of x cost what one does, but for their
// bytes.
//
// The blocks of a cluster have parts of k, whose sums meet in a fixed order; what is beyond a
// tensor is zeros.
//
// Cost: the weights are read once, 2 m FLOPs for each: bound by memory.
// Source: PTX ISA, "wgmma.mma_async", "cp.async.bulk.tensor".
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <dotcu/cluster.cuh>
#include <dotcu/pipeline.cuh>
#include <dotcu/wgmma.cuh>

#include "weights.cuh"

constexpr int ROW = 128;             // bytes of a row in a stage
constexpr int ROWS = 64, WARPS = 4;  // those of weights, and the warps that multiply them

template <typename T, int columns, int stages>
__global__ void __launch_bounds__(32 * (WARPS + 1))
    gemv_wide(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap weights,
              const T* __restrict__ bias, T* __restrict__ out, int m, int n, int k) {
    constexpr int span = ROW / sizeof(T), STAGE = (ROWS + columns) * ROW;
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ dotcu::pipeline<stages> pipe;
    if (threadIdx.x == 0) pipe.init(1, 1);
    if (threadIdx.x == 32 * WARPS) dotcu::tma_prefetch(weights), dotcu::tma_prefetch(x);
    __syncthreads();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int blocks = dotcu::cluster_blocks(), rank = dotcu::cluster_rank();
    const int first = blockIdx.x / blocks * ROWS, all = (k + span - 1) / span;
    const int begin = all * rank / blocks, end = all * (rank + 1) / blocks;
    dotcu::ring<stages> at;
    float sum[1][columns / 8][4] = {};
    auto& d = reinterpret_cast<float (&)[columns / 2]>(sum);

    if (warp == WARPS) {
        for (int step = begin; lane == 0 && step < end; ++step, at.next()) {
            unsigned char* stage = memory + at.stage * STAGE;
            dotcu::mbarrier& full = pipe.acquire(at);
            full.arrive_expect(STAGE);
            dotcu::tma_load(stage, weights, full, first, step * span);
            dotcu::tma_load(stage + ROWS * ROW, x, full, 0, step * span);
        }
        __syncwarp();
    } else {
        for (int step = begin; step < end; ++step, at.next()) {
            const unsigned char* stage = memory + at.stage * STAGE;
            const auto a = dotcu::k_major(stage), b = dotcu::k_major(stage + ROWS * ROW);
            pipe.wait(at);
            dotcu::wgmma_fence(d);
#pragma unroll
            for (int j = 0; j < ROW; j += 32) dotcu::wgmma<T>(d, a + j, b + j);
            dotcu::wgmma_commit();
            dotcu::wgmma_wait<0>(d);
            if (threadIdx.x == 0) pipe.release(at);
        }
    }
    __syncthreads();
    const int mine = warp < WARPS ? warp * 16 : -1;
    finish<1, ROWS>(sum, reinterpret_cast<float*>(memory), 0, mine, static_cast<const T*>(nullptr),
                    0, bias ? bias + first : nullptr, out + first, m, min(n - first, ROWS), n);
}
