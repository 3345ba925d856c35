// A row of a tensor in the registers of a warp, and the score of two: for the plain kernels.
#pragma once

#include <dotcu/tensor.cuh>

template <typename A>
struct Rule {
    int left, right;
    A scale, cap;
    __device__ int first(int i) const { return max(0, i - left); }
    __device__ int end(int i, int keys) const {
        return min((long long)keys, (long long)i + right + 1);
    }
};

// A row in the registers of a warp: column lane + 32 c in x[c].
template <typename A>
struct Row {
    A x[8] = {};
    template <typename T>
    __device__ Row(const dotcu::tensor<T, 4>& of, long long b, long long h, long long i) {
        for (int c = 0, d = threadIdx.x % 32; c < 8 && d < of.size(3); ++c, d += 32)
            x[c] = of(b, h, i, d);
    }
    __device__ Row() {}
    __device__ void add(A factor, const Row& other) {
        for (int c = 0; c < 8; ++c) x[c] += factor * other.x[c];
    }
    template <typename T>
    __device__ void write(const dotcu::tensor<T, 4>& to, long long b, long long h,
                          long long i) const {
        for (int c = 0, d = threadIdx.x % 32; c < 8 && d < to.size(3); ++c, d += 32)
            to(b, h, i, d) = x[c];
    }
    __device__ A dot(const Row& other) const {
        A sum = 0;
        for (int c = 0; c < 8; ++c) sum += x[c] * other.x[c];
        for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
        return sum;
    }
};

// The score of a product, and its slope.
template <typename A>
__device__ A score_of(A product, Rule<A> rule, A& slope) {
    slope = 1;
    if (!(rule.cap > 0)) return product * rule.scale;
    const A bent = tanh(product * rule.scale / rule.cap);
    slope = 1 - bent * bent;
    return rule.cap * bent;
}

// Rows of a sequence: all, or those of the packed one that has row i in the first tensor.
struct Rows {
    int start, count;
    __device__ Rows(const int* starts, int sequences, int all, const int* first, int i) {
        start = 0, count = all;
        if (!starts) return;
        int s = 0;
        while (s + 1 < sequences && first[s + 1] <= i) ++s;
        start = min(starts[s], all),
        count = (s + 1 < sequences ? min(starts[s + 1], all) : all) - start;
    }
};

#define AT_ROW(of)                                                             \
    const long long row = blockIdx.x * 8ll + threadIdx.x / 32, n = of.size(2); \
    if (row >= of.size(0) * of.size(1) * n) return;                            \
    const int b = row / n / of.size(1), h = row / n % of.size(1), i = row % n
