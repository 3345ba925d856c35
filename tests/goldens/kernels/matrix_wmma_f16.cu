// wmma of f16, in every shape and layout, with sums in f32 and in f16.

#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

using Row = wmma::row_major;
using Column = wmma::col_major;

// out = a b + c + 1 for one tile with 16 k-steps.
template <int m, int n, typename Sum, typename LayoutA, typename LayoutB>
__device__ void tile(const half* a, const half* b, const Sum* c, Sum* out, int lda, int ldb,
                     wmma::layout_t layout) {
    wmma::fragment<wmma::matrix_a, m, n, 16, half, LayoutA> fa;
    wmma::fragment<wmma::matrix_b, m, n, 16, half, LayoutB> fb;
    wmma::fragment<wmma::accumulator, m, n, 16, Sum> sum;
    const int ldc = layout == wmma::mem_row_major ? n : m;
    wmma::load_matrix_sync(fa, a, lda);
    wmma::load_matrix_sync(fb, b, ldb);
    wmma::load_matrix_sync(sum, c, ldc, layout);
    for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = sum.x[i] + Sum(1.0f);
    wmma::mma_sync(sum, fa, fb, sum);
    wmma::store_matrix_sync(out, sum, ldc, layout);
}

extern "C" __global__ void matrix_wmma_f16(const half* a, const half* b, const float* c,
                                           const half* narrow_c, float* out, half* narrow_out) {
    tile<16, 16, float, Row, Column>(a, b, c, out, 16, 16, wmma::mem_row_major);
    tile<16, 16, float, Row, Row>(a, b, c, out + 256, 16, 16, wmma::mem_col_major);
    tile<32, 8, float, Column, Row>(a, b, c, out + 512, 32, 8, wmma::mem_row_major);
    tile<8, 32, float, Column, Column>(a, b, c, out + 768, 8, 16, wmma::mem_row_major);
    tile<16, 16, half, Row, Column>(a, b, narrow_c, narrow_out, 16, 16, wmma::mem_row_major);
    tile<32, 8, half, Row, Row>(a, b, narrow_c, narrow_out + 256, 16, 8, wmma::mem_col_major);
}
