// out = a @ b in bf16, with sums in f32: a is (64, 64) and read from registers, b is (64, N) and
// read as it lies, by rows along N (MN-major): boxes of 64 x 64, one after the other.
#include <cuda_bf16.h>
#include <dotcu/wgmma.cuh>

constexpr int K = 64, N = 192, BOX = 64;

__global__ void __launch_bounds__(128)
    layouts(const __nv_bfloat16* a, const __grid_constant__ CUtensorMap b, float* out) {
    __shared__ alignas(1024) __nv_bfloat16 b_tile[N / BOX][K][BOX];
    __shared__ dotcu::mbarrier full;
    if (threadIdx.x == 0) full.init(1);
    __syncthreads();
    if (threadIdx.x == 0) {
        full.arrive_expect(sizeof(b_tile));
        for (int i = 0; i < N / BOX; ++i) dotcu::tma_load(b_tile[i], b, full, 0, i * BOX);
    }
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    unsigned x[K / 16][4];
    for (int k = 0; k < K; k += 16) {
        for (int i = 0; i < 4; ++i) {
            const int at = (row + i % 2 * 8) * K + k + i / 2 * 8 + lane % 4 * 2;
            x[k / 16][i] = *reinterpret_cast<const unsigned*>(a + at);
        }
    }
    full.wait(0);
    float d[N / 2];
    const auto rows = dotcu::mn_major(b_tile, sizeof(b_tile[0]));
    dotcu::wgmma_fence(d, x);
#pragma unroll
    for (int k = 0; k < K; k += 16)
        dotcu::wgmma<__nv_bfloat16, __nv_bfloat16, true>(d, x[k / 16], rows + k * 128, k > 0);
    dotcu::wgmma_commit();
    dotcu::wgmma_wait<0>(d, x);
    for (int i = 0; i < N / 2; ++i)
        out[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}
