// out = a @ b.T in bf16, with sums in f32: a is (M, K), b is (N, K), out is (M, N); tiles of 128 x
// 64 x 64, by persistent clusters of two blocks.
//
// The blocks of a cluster compute tiles below each other, with the same rows of b: each copies half
// of them to both by multicast. One warpgroup's first thread copies; two warpgroups multiply 64
// rows each, and release a stage in both blocks, whose copies write it. full[s] counts the bytes of
// a stage, empty[s] the warpgroups of the cluster that have read it.
#include <cuda_bf16.h>
#include <dotcu/cluster.cuh>
#include <dotcu/tma.cuh>

constexpr int M = 128, N = 64, K = 64, STAGES = 4;

// K-major, 128 bytes a row, swizzled: 8 rows are 1024 bytes.
__device__ unsigned long long matrix(const void* tile) {
    unsigned long long at = dotcu::shared_address(tile);
    return (at & 0x3ffff) >> 4 | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}

__device__ void multiply(float (&d)[32], unsigned long long a, unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
          "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b));
}

// One arrival at the barrier in each block of the cluster.
__device__ void release(dotcu::mbarrier& barrier, unsigned rank) {
    asm volatile(
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;"
        " mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }" ::"r"(
            dotcu::shared_address(&barrier)),
        "r"(rank)
        : "memory");
}

// The box goes to both blocks, and its bytes are counted there.
__device__ void load_to_both(void* tile, const CUtensorMap& map, dotcu::mbarrier& barrier, int row,
                             int column) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
        "multicast::cluster"
        " [%0], [%1, {%3, %2}], [%4], %5;" ::"r"(dotcu::shared_address(tile)),
        "l"(&map), "r"(row), "r"(column), "r"(dotcu::shared_address(&barrier)), "h"((short)3)
        : "memory");
}

struct alignas(1024) Stage {
    __nv_bfloat16 a[M][K], b[N][K];
};

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384)
    matmul(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
           __nv_bfloat16* out, int m, int n, int k) {
    extern __shared__ Stage stages[];
    __shared__ dotcu::mbarrier full[STAGES], empty[STAGES];
    const int group = threadIdx.x / 128, rank = dotcu::cluster_rank(), pairs = m / (2 * M);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) full[s].init(1), empty[s].init(4);
    }
    dotcu::cluster_sync();
    int i = 0;  // stages so far
    for (int tile = blockIdx.x / 2; tile < pairs * (n / N); tile += gridDim.x / 2) {
        const int row = (tile % pairs * 2 + rank) * M, column = tile / pairs * N;
        float d[32] = {};
        for (int end = i + k / K, j = 0; i < end; ++i, j += K) {
            Stage& stage = stages[i % STAGES];
            dotcu::mbarrier &filled = full[i % STAGES], &free = empty[i % STAGES];
            const unsigned parity = i / STAGES % 2;
            if (group == 2 && threadIdx.x % 128 == 0) {
                free.wait(parity ^ 1);
                filled.arrive_expect(sizeof(Stage));
                dotcu::tma_load(stage.a, a, filled, row, j);
                load_to_both(stage.b[rank * N / 2], b, filled, column + rank * N / 2, j);
            } else if (group < 2) {
                filled.wait(parity);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                for (int c = 0; c < K; c += 16)
                    multiply(d, matrix(&stage.a[64 * group][c]), matrix(&stage.b[0][c]));
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                if (threadIdx.x % 128 < 2) release(free, threadIdx.x % 128);
            }
        }
        const int lane = threadIdx.x % 32, first = row + 16 * (threadIdx.x / 32) + lane / 4;
        for (int c = 0; group < 2 && c < 32; c += 2) {
            const long long r = first + c / 2 % 2 * 8, at = column + c / 4 * 8 + lane % 4 * 2;
            __nv_bfloat162 pair = __floats2bfloat162_rn(d[c], d[c + 1]);
            *reinterpret_cast<__nv_bfloat162*>(out + r * n + at) = pair;
        }
    }
    dotcu::cluster_sync();  // the other block still releases stages here
}
