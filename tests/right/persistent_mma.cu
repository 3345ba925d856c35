// out = a @ b in bf16, with sums in f32: a is (M, 16), b is (16, N). Each block, a warp, takes
// tiles of 16 x 16 in groups of two rows of tiles.
#include <cuda_bf16.h>
#include <dotcu/mma.cuh>
#include <dotcu/schedule.cuh>

__global__ void __launch_bounds__(32)
    persistent_mma(const __nv_bfloat16* a, const __nv_bfloat16* b, float* out, int m, int n) {
    __shared__ alignas(16) __nv_bfloat16 a_tile[16][16], b_tile[16][16];
    const int lane = threadIdx.x;
    const dotcu::tile_grid tiles{1, m / 16, n / 16};
    for (int t = blockIdx.x; t < tiles.count(); t += gridDim.x) {
        const dotcu::tile at = tiles.grouped(t, 2);
        for (int i = lane; i < 256; i += 32) {
            a_tile[i / 16][i % 16] = a[(at.row * 16 + i / 16) * 16 + i % 16];
            b_tile[i / 16][i % 16] = b[i / 16 * n + at.column * 16 + i % 16];
        }
        __syncwarp();
        unsigned x[4], y[4];
        dotcu::load_matrices(x, &a_tile[lane % 16][lane / 16 * 8]);
        dotcu::load_matrices<true>(y, &b_tile[lane % 16][lane / 16 * 8]);
        float d[2][4] = {};
        dotcu::mma<__nv_bfloat16>(d[0], x, y[0], y[1]);
        dotcu::mma<__nv_bfloat16>(d[1], x, y[2], y[3]);
        for (int i = 0; i < 8; ++i) {
            const int row = at.row * 16 + lane / 4 + i / 2 % 2 * 8;
            out[row * n + at.column * 16 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i / 4][i % 4];
        }
        __syncwarp();
    }
}
