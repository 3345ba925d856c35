// A matrix product of f16 by wmma: a warp for each 16 x 16 tile, K in steps of 16.

#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

extern "C" __global__ void real_wmma_matmul(const half* a, const half* b, float* out, int n,
                                            int k) {
    const int row = blockIdx.y * 16,
              column = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int at = 0; at < k; at += 16) {
        wmma::load_matrix_sync(fa, a + row * k + at, k);
        wmma::load_matrix_sync(fb, b + at * n + column, n);
        wmma::mma_sync(sum, fa, fb, sum);
    }
    wmma::store_matrix_sync(out + row * n + column, sum, n, wmma::mem_row_major);
}
