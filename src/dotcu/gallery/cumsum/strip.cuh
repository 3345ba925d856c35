// strip.cuh: a part of a row, scanned by some lanes of a warp with shuffles.
//
// The lanes scan the sums of vectors; the elements stay unchanged in shared memory.
#pragma once

#include <dotcu/reduce.cuh>
#include "waiting.cuh"

template <typename T, typename Out, typename Sum, int width, int vectors, int lanes, row_way way,
          bool reverse>
struct strip : waiting<T, width, vectors, lanes, way, reverse> {
    using Waiting = waiting<T, width, vectors, lanes, way, reverse>;
    using typename Waiting::V, Waiting::whole, Waiting::part, Waiting::step;
    Sum before[vectors];

    __device__ Sum of_vector(int k) const {
        const V v = part[k * lanes];
        Sum sum = 0;
        for (int j = 0; j < width; ++j) sum += static_cast<Sum>(v[j]);
        return sum;
    }

    // Returns the sum of the strip in every lane.
    __device__ Sum sum() const {
        Sum all = 0;
#pragma unroll
        for (int k = 0; k < vectors; ++k) all += of_vector(k);
        return reduce_warp<lanes>(all, plus());
    }

    // Computes the prefix of each vector; returns the sum of the strip.
    __device__ Sum scan() {
        const int lane = threadIdx.x % lanes;
        Sum sum[vectors], total = 0;
#pragma unroll
        for (int k = 0; k < vectors; ++k) sum[k] = of_vector(k);
#pragma unroll
        for (int distance = 1; distance < lanes; distance *= 2) {
#pragma unroll
            for (int k = 0; k < vectors; ++k) {
                const Sum other = __shfl_up_sync(all_lanes, sum[k], distance, lanes);
                if (lane >= distance) sum[k] += other;
            }
        }
#pragma unroll
        for (int k = 0; k < vectors; ++k) {
            const Sum other = __shfl_up_sync(all_lanes, sum[k], 1, lanes);
            before[k] = lane == 0 ? total : total + other;
            total += __shfl_sync(all_lanes, sum[k], lanes - 1, lanes);
        }
        return total;
    }

    // Writes the result; `start` is the prefix of the strip.
    template <typename Carry>
    __device__ void store(Out* row, long long at, long long n, Carry start) const {
#pragma unroll
        for (int k = 0; k < vectors; ++k) {
            const Sum base = static_cast<Sum>(start + before[k]);
            const V v = part[k * lanes];
            vector<Out, width> y;
            Sum sum = 0;
            for (int j = 0; j < width; ++j) {
                const int here = reverse ? width - 1 - j : j;
                sum += static_cast<Sum>(v[here]);
                y[here] = static_cast<Out>(base + sum);
            }
            const long long i = at + k * step;
            const bool all = whole(i, n);
            if (all) store_whole(row + i, y);
#pragma unroll
            for (int j = 0; j < width; ++j) {
                if (!all && static_cast<unsigned long long>(i + j) < n) row[i + j] = y[j];
            }
        }
    }
};
