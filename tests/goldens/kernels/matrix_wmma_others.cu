// wmma of bf16, tf32, f64 and 8-bit integers.

#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda;

// out = a b + c for one tile.
template <int m, int n, int k, typename T, typename Sum, typename Stored = T>
__device__ void tile(const Stored* a, const Stored* b, const Sum* c, Sum* out) {
    wmma::fragment<wmma::matrix_a, m, n, k, T, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, m, n, k, T, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, m, n, k, Sum> sum;
    wmma::load_matrix_sync(fa, a, k);
    wmma::load_matrix_sync(fb, b, k);
    wmma::load_matrix_sync(sum, c, n, wmma::mem_row_major);
    wmma::mma_sync(sum, fa, fb, sum);
    wmma::store_matrix_sync(out, sum, n, wmma::mem_row_major);
}

extern "C" __global__ void matrix_wmma_others(
    const unsigned short* bits_a, const unsigned short* bits_b, const float* c, const float* tf_a,
    const float* tf_b, const signed char* char_a, const signed char* char_b, const double* wide_a,
    const double* wide_b, const double* wide_c, float* out, int* sums, double* wide) {
    const auto* a = reinterpret_cast<const __nv_bfloat16*>(bits_a);
    const auto* b = reinterpret_cast<const __nv_bfloat16*>(bits_b);
    tile<16, 16, 16, __nv_bfloat16>(a, b, c, out);
    tile<32, 8, 16, __nv_bfloat16>(a, b, c, out + 256);
    tile<8, 32, 16, __nv_bfloat16>(a, b, c, out + 512);
    tile<16, 16, 8, wmma::precision::tf32>(tf_a, tf_b, c, out + 768);
    const int* zero = sums + 768;
    tile<16, 16, 16, signed char>(char_a, char_b, zero, sums);
    tile<32, 8, 16, signed char>(char_a, char_b, zero, sums + 256);
    const auto* bytes_a = reinterpret_cast<const unsigned char*>(char_a);
    const auto* bytes_b = reinterpret_cast<const unsigned char*>(char_b);
    tile<8, 32, 16, unsigned char>(bytes_a, bytes_b, zero, sums + 512);
    tile<8, 8, 4, double>(wide_a, wide_b, wide_c, wide);
}
