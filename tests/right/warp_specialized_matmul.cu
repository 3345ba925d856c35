// out = a @ b.T in bf16, with sums in f32: a is (M, K), b is (N, K), out is (M, N); tiles of 128 x
// 128 x 64.
//
// One warpgroup's first thread copies tiles by TMA into four stages; two warpgroups multiply 64
// rows each. full[s] counts the bytes of a stage, empty[s] the warpgroups that have read it.
#include <cuda_bf16.h>
#include <dotcu/tma.cuh>

constexpr int M = 128, N = 128, K = 64, STAGES = 4;

// K-major, 128 bytes a row, swizzled: 8 rows are 1024 bytes.
__device__ unsigned long long matrix(const void* tile) {
    unsigned long long at = dotcu::shared_address(tile);
    return at >> 4 | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}

__device__ void multiply(float (&d)[64], unsigned long long a, unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
          "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
          "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
          "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
          "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),
          "+f"(d[63])
        : "l"(a), "l"(b));
}

__device__ void arrive(dotcu::mbarrier& barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(dotcu::shared_address(&barrier))
                 : "memory");
}

struct alignas(1024) Stage {
    __nv_bfloat16 a[M][K], b[N][K];
};

__global__ void __launch_bounds__(384)
    matmul(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
           __nv_bfloat16* out, int n, int k) {
    extern __shared__ Stage stages[];
    __shared__ dotcu::mbarrier full[STAGES], empty[STAGES];
    const int group = threadIdx.x / 128, row = blockIdx.y * M, column = blockIdx.x * N;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) full[s].init(1), empty[s].init(2);
    }
    __syncthreads();
    if (group == 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x % 128 == 0) {
            for (int i = 0; i < k / K; ++i) {
                const int s = i % STAGES;
                empty[s].wait(i / STAGES % 2 ^ 1);
                full[s].arrive_expect(sizeof(Stage));
                dotcu::tma_load(stages[s].a, a, full[s], row, i * K);
                dotcu::tma_load(stages[s].b, b, full[s], column, i * K);
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float d[64] = {};
    for (int i = 0; i < k / K; ++i) {
        const int s = i % STAGES;
        full[s].wait(i / STAGES % 2);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int j = 0; j < K; j += 16)
            multiply(d, matrix(&stages[s].a[64 * group][j]), matrix(&stages[s].b[0][j]));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (threadIdx.x % 128 == 0) arrive(empty[s]);
    }
    const int lane = threadIdx.x % 32, first = row + 16 * (threadIdx.x / 32) + lane / 4;
    for (int i = 0; i < 64; i += 2) {
        const long long r = first + i / 2 % 2 * 8, c = column + i / 4 * 8 + lane % 4 * 2;
        *reinterpret_cast<__nv_bfloat162*>(out + r * n + c) = __floats2bfloat162_rn(d[i], d[i + 1]);
    }
}
