// parts.cuh: a thread's part of a row of softmax, held in registers, and its quotients.
#pragma once

#include <dotcu/grid.cuh>
#include <dotcu/row.cuh>
#include <dotcu/tally.cuh>

// bfloat16 has results that are subnormal floats: intermediate values are 2^lift times as large.
template <typename T>
constexpr int lift = sizeof(T) == 2 ? 24 : 0;

// A thread's part of a row: `steps` vectors, `stride` elements apart; -inf beyond them.
template <int stride, int steps, int width, typename T, typename Split>
__device__ void hold(dotcu::vector<T, width> (&x)[steps], const Split& split, const T* row,
                     long long at) {
#pragma unroll
    for (int k = 0; k < steps; ++k, at += stride) {
        const bool there = at < split.inner;
        x[k] = split.load(there, row + split.first + at, 0, static_cast<T>(-dotcu::infinity));
    }
}

// exp(x) over the row's sum. As in torch, a row with +inf is NaN, and so is a row of -inf.
template <typename T, int width>
__device__ dotcu::vector<T, width> quotients(dotcu::vector<T, width> x,
                                             const dotcu::tally<T>& all) {
    const auto sum = all.largest == dotcu::infinity ? all.sum - all.sum : all.sum;
    const auto scale = 1 / (sum * (1 << lift<T>));
    dotcu::repack(x);
    auto y = dotcu::widen<dotcu::wide<T>>(x);
#pragma unroll
    for (int i = 0; i < width; ++i) {
        y[i] = dotcu::exponential<T, lift<T>>(y[i] - all.base()) * scale;
    }
    return dotcu::to<T>(y);
}

template <int stride, int steps, int width, typename T, typename Split>
__device__ void divide(const dotcu::vector<T, width> (&x)[steps], const dotcu::tally<T>& all,
                       const Split& split, T* row, long long at) {
#pragma unroll
    for (int k = 0; k < steps; ++k, at += stride) {
        if (at < split.inner) dotcu::store(row + split.first + at, quotients(x[k], all));
    }
}
