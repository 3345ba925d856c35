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

__device__ inline float silu(float x) { return __fdividef(x, 1.f + exp2_fast(-1.44269504f * x)); }

// x times the normal distribution up to x. The part of it beyond |x| is 2^q(|x|), within 5e-5 of it
// up to 6: a minimax fit of log2(erfc(x / sqrt(2)) / 2). From 10 on it is below every value of x.
__device__ inline float gelu(float x) {
    const float y = fminf(fabsf(x), 10.f);
    float q = fmaf(y, 2.29900598e-5f, -0.000611100114f);
    q = fmaf(y, q, 0.00719556695f);
    q = fmaf(y, q, -0.0511853444f);
    q = fmaf(y, q, -0.461271907f);
    q = fmaf(y, q, -1.15017427f);
    q = fmaf(y, q, -1.00006478f);
    return fmaf(-y, exp2_fast(q), x > 0.f ? x : x == x ? 0.f : x);
}

// FLAGS: a sum of the constants above. Out: the type of bias, other and the result, unless that is
// of 8 bits: then theirs is T.
template <int FLAGS, typename T>
struct Epilogue {
    const T* bias;         // n
    const T* other;        // m x n for each batch
    const float* scale_a;  // one, or m with ROW_SCALES
    const float* scale_b;  // one, or n
    float alpha, beta;
    int m, n;

    __device__ void operator()(float (&x)[4], int batch, int row, int column) const {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            const bool inside = column + c < n;
            const float by_column = FLAGS & ROW_SCALES && inside ? scale_b[column + c] : 1.f;
            const float add = FLAGS & BIAS && inside ? static_cast<float>(bias[column + c]) : 0.f;
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const int at = row + 8 * r;
                float value = x[2 * r + c] * alpha;
                if constexpr (FLAGS & SCALES) value *= *scale_a * *scale_b;
                if constexpr (FLAGS & ROW_SCALES) value *= (at < m ? scale_a[at] : 0.f) * by_column;
                if constexpr (FLAGS & BIAS) value += add;
                if constexpr (FLAGS & GELU) value = gelu(value);
                if constexpr (FLAGS & SILU) value = silu(value);
                if constexpr (FLAGS & OTHER) {
                    const long long i = (static_cast<long long>(batch) * m + at) * n + column + c;
                    if (inside && at < m) value = fmaf(beta, static_cast<float>(other[i]), value);
                }
                x[2 * r + c] = value;
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
