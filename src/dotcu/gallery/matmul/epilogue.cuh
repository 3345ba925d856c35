// What matmul does with sums before it rounds them:
//     out = act(alpha * scale_a[row] * scale_b[column] * sum + bias[column]) + beta * other
// or, of a pair of products, silu(sum) * sum_up. A functor is given two rows of two columns at
// once, as tensor cores leave them in a thread: x[0], x[1] of `row`, x[2], x[3] of `row` + 8.
#pragma once

#include <dotcu/mma.cuh>

constexpr int BIAS = 1, OTHER = 2, GELU = 4, SILU = 8, SWIGLU = 16, SCALES = 32, ROW_SCALES = 64;
constexpr int GROUPS = 128;  // each batch is of b alone, and multiplies a group of the rows of a

__device__ inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ inline float max_or_nan(float x, float y) {
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(y));
    return x;
}

__device__ inline float silu(float x) { return __fdividef(x, 1.f + exp2_fast(-1.44269504f * x)); }

// x times the normal distribution up to x. The part of it beyond |x| is 2^q(|x|), within 2.5e-4 of
// it up to 5.5: a minimax fit of log2(erfc(x / sqrt(2)) / 2). From 16 on it is rounded to 0.
__device__ inline float gelu(float x) {
    const float y = fminf(fabsf(x), 16.f);
    float q = fmaf(y, -0.000233251355f, 0.00486977524f);
    q = fmaf(y, q, -0.044599025f);
    q = fmaf(y, q, -0.469681048f);
    q = fmaf(y, q, -1.14626085f);
    q = fmaf(y, q, -1.00035908f);
    return fmaf(-y, exp2_fast(q), max_or_nan(x, 0.f));
}

// FLAGS: a sum of the constants above. Out: the type of bias, other and the result, unless that is
// of 8 bits: then theirs is T.
template <int FLAGS, typename T>
struct Epilogue {
    const T* bias;         // n
    const T* other;        // m x n for each batch
    const float* scale_a;  // one, or m with ROW_SCALES
    const float* scale_b;  // one, or n
    float alpha, beta;     // alpha: with scale_a and scale_b, if these are one each
    int m, n;

    __device__ void operator()(float (&x)[4], int batch, int row, int column) const {
        float of_rows[2] = {1.f, 1.f};
        alignas(8) float of_columns[2] = {};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if constexpr (FLAGS & ROW_SCALES) {
                of_rows[i] = row + 8 * i < m ? scale_a[row + 8 * i] : 0.f;
                of_columns[i] = column + i < n ? scale_b[column + i] : 0.f;
            } else if constexpr (FLAGS & BIAS) {
                of_columns[i] = column + i < n ? static_cast<float>(bias[column + i]) : 0.f;
            }
        }
        (*this)(x, of_rows, of_columns, batch, row, column);
    }

    // With what was read: scales of both rows and both columns, or else biases of both columns.
    __device__ void operator()(float (&x)[4], const float (&of_rows)[2], const float* of_columns,
                               int batch, int row, int column) const {
        float2 of_both = {};
        if constexpr (FLAGS & (BIAS | ROW_SCALES))
            of_both = *reinterpret_cast<const float2*>(of_columns);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int at = row + i / 2 * 8, c = column + i % 2;
            const float of_column = i % 2 ? of_both.y : of_both.x;
            if constexpr (FLAGS & ROW_SCALES)
                x[i] *= of_rows[i / 2] * of_column;
            else
                x[i] = FLAGS & BIAS ? fmaf(x[i], alpha, of_column) : x[i] * alpha;
            if constexpr ((FLAGS & ROW_SCALES) && (FLAGS & BIAS))
                x[i] += c < n ? static_cast<float>(bias[c]) : 0.f;
            if constexpr (FLAGS & GELU) x[i] = gelu(x[i]);
            if constexpr (FLAGS & SILU) x[i] = silu(x[i]);
            if constexpr (FLAGS & OTHER) {
                const long long to = (static_cast<long long>(batch) * m + at) * n + c;
                if (at < m && c < n) x[i] = fmaf(beta, static_cast<float>(other[to]), x[i]);
            }
        }
    }

    __device__ static void pair(float (&x)[4], const float (&up)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = silu(x[i]) * up[i];
    }
};

// Writes zeros to the rows of a matrix of m x n that no group has.
template <typename Out>
__device__ void zero_rest(Out* out, const int* ends, int groups, int m, int n) {
    long long i = 0;
    for (int g = 0; g < groups; ++g) i = max(i, 1ll * ends[g] * n);
    for (i += blockIdx.x * blockDim.x + threadIdx.x; i < 1ll * m * n; i += gridDim.x * blockDim.x)
        out[i] = Out(0.f);
}

// Writes two rows of two columns, as above, to a matrix of m x n whose rows may be unaligned.
template <typename Out>
__device__ void write_quad(Out* out, int m, int n, int row, int column, const float (&x)[4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (row + 8 * r >= m || column >= n) continue;
        Out* to = out + static_cast<long long>(row + 8 * r) * n + column;
        const Out two[2] = {Out(x[2 * r]), Out(x[2 * r + 1])};
        if (n % 2 == 0) {
            *reinterpret_cast<dotcu::vector<Out, 2>*>(to) = {two[0], two[1]};
        } else {
            to[0] = two[0];
            if (column + 1 < n) to[1] = two[1];
        }
    }
}

// Writes a warp's 16 rows of 16 columns, from (row, column) on, into a box of rows of 128 bytes
// that is swizzled as TMA expects it.
template <typename Out>
__device__ void put(unsigned char* box, int row, int column, int lane, const float (&x)[2][4]) {
    if constexpr (sizeof(Out) == 2) {
        unsigned words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const Out two[2] = {Out(x[i / 2][i % 2 * 2]), Out(x[i / 2][i % 2 * 2 + 1])};
            memcpy(&words[i], two, 4);
        }
        row += lane % 16;
        dotcu::store_matrices(box + row * 128 + (column / 8 + lane / 16 ^ row % 8) * 16, words);
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int r = row + lane / 4 + i % 2 * 8;
            const int byte = (column + i / 2 * 8 + lane % 4 * 2) * sizeof(Out);
            const Out two[2] = {Out(x[i / 2][i % 2 * 2]), Out(x[i / 2][i % 2 * 2 + 1])};
            memcpy(box + r * 128 + (byte / 16 ^ r % 8) * 16 + byte % 16, two, sizeof(two));
        }
    }
}
