// matmul: out = a @ b, the product of two matrices.
//
//     out[m][n] = sum over k of a[m][k] * b[k][n]     a: (M, K), b: (K, N), out: (M, N)
//
// a and b may have any strides, so a transposed matrix is not copied. A block of
// tile x tile threads computes a tile of tile x tile elements of out, a thread for each element,
// and then goes on to the tile that is a whole grid further. Products add up in Sum: float for
// the half types; in the tiled kernel each tile's by themselves, which rounds less.
//
//     matmul_naive    reads a row of a and a column of b from memory for each element of out
//     matmul_tiled    brings a tile of a and a tile of b into shared memory, from where each
//                     element is read `tile` times: that much less traffic
//
// Cost: 2 M N K FLOPs. Elements read: 2 M N K by the naive kernel, 2 M N K / tile by the tiled
// one; written: M N. Bound by memory, or by shared memory; tensor cores are another kernel.
// Source: CUDA C++ Programming Guide, section "Shared Memory".

#include "dotcu/tensor.cuh"

// Where a tile of out begins. Tiles are numbered row by row.
struct Corner {
    long long row, column;
};

__device__ long long ceil_div(long long a, long long b) { return (a + b - 1) / b; }

template <typename T>
__device__ long long count_tiles(dotcu::tensor<T, 2> out, int tile) {
    return ceil_div(out.size(0), tile) * ceil_div(out.size(1), tile);
}

template <typename T>
__device__ Corner corner_of(dotcu::tensor<T, 2> out, long long number, int tile) {
    const long long tiles_in_row = ceil_div(out.size(1), tile);
    return {number / tiles_in_row * tile, number % tiles_in_row * tile};
}

template <typename T, typename Sum, int tile>
__global__ void __launch_bounds__(tile* tile)
    matmul_naive(dotcu::tensor<const T, 2> a, dotcu::tensor<const T, 2> b,
                 dotcu::tensor<T, 2> out) {
    for (long long t = blockIdx.x; t < count_tiles(out, tile); t += gridDim.x) {
        const Corner corner = corner_of(out, t, tile);
        const long long row = corner.row + threadIdx.y;
        const long long column = corner.column + threadIdx.x;
        if (row >= out.size(0) || column >= out.size(1)) continue;

        Sum sum = 0;
        for (long long k = 0; k < a.size(1); ++k) {
            sum += static_cast<Sum>(a(row, k)) * static_cast<Sum>(b(k, column));
        }
        out(row, column) = static_cast<T>(sum);
    }
}

// x(row, column), or zero outside of x, so that a tile may extend beyond a matrix.
template <typename Sum, typename T>
__device__ Sum load(dotcu::tensor<const T, 2> x, long long row, long long column) {
    const bool inside = row < x.size(0) && column < x.size(1);
    return inside ? static_cast<Sum>(x(row, column)) : Sum(0);
}

template <typename T, typename Sum, int tile>
__global__ void __launch_bounds__(tile* tile)
    matmul_tiled(dotcu::tensor<const T, 2> a, dotcu::tensor<const T, 2> b,
                 dotcu::tensor<T, 2> out) {
    __shared__ Sum a_tile[tile][tile];
    __shared__ Sum b_tile[tile][tile];
    const int y = threadIdx.y;
    const int x = threadIdx.x;

    for (long long t = blockIdx.x; t < count_tiles(out, tile); t += gridDim.x) {
        const Corner corner = corner_of(out, t, tile);
        const long long row = corner.row + y;
        const long long column = corner.column + x;

        Sum sum = 0;
        for (long long k = 0; k < a.size(1); k += tile) {
            a_tile[y][x] = load<Sum>(a, row, k + x);
            b_tile[y][x] = load<Sum>(b, k + y, column);
            __syncthreads();  // both tiles are complete
            Sum of_tile = 0;
#pragma unroll
            for (int i = 0; i < tile; ++i) of_tile += a_tile[y][i] * b_tile[i][x];
            sum += of_tile;
            __syncthreads();  // all threads are done with them
        }
        if (row < out.size(0) && column < out.size(1)) out(row, column) = static_cast<T>(sum);
    }
}
