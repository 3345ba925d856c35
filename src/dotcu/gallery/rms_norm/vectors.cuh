// vectors.cuh: the threads of rms_norm, and its arithmetic on a vector of a row or on one element.
#pragma once

#include <dotcu/reduce.cuh>
#include <dotcu/vector.cuh>

template <int lanes>
constexpr int threads_of = lanes <= dotcu::warp_size ? 128 : lanes;  // short rows share a block

// The threads that a multiprocessor should hold: as many as possible if short rows are then all in
// flight at once.
template <typename Sum, int lanes, bool exact, bool adds>
constexpr int resident =
    lanes <= dotcu::warp_size && exact && !adds && sizeof(Sum) == 4 ? 2048 : 1024;

// Of a vector, or of an edge: the sum with the residual, rounded; the sum of squares; x * r *
// weight.
template <typename Sum, typename T, int n>
__device__ dotcu::vector<T, n> sum_of(const dotcu::vector<T, n>& x, const dotcu::vector<T, n>& y) {
    auto both = dotcu::widen<Sum>(x);
    const auto second = dotcu::widen<Sum>(y);
    for (int k = 0; k < n; ++k) both[k] += second[k];
    return dotcu::to<T>(both);
}

template <typename Sum, typename T, int n>
__device__ Sum squares_of(const dotcu::vector<T, n>& x) {
    const auto value = dotcu::widen<Sum>(x);
    Sum some = 0;
    for (int k = 0; k < n; ++k) some += value[k] * value[k];
    return some;
}

template <typename Sum, typename T, typename W, int n>
__device__ dotcu::vector<T, n> scaled(const dotcu::vector<T, n>& x,
                                      const dotcu::vector<W, n>& scale, Sum r) {
    const auto by = dotcu::widen<Sum>(scale);
    auto value = dotcu::widen<Sum>(x);
    for (int k = 0; k < n; ++k) value[k] = value[k] * r * by[k];
    return dotcu::to<T>(value);
}
