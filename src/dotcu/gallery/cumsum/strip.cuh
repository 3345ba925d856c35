// strip.cuh: a part of a row in the hands of some lanes, scanned by shuffles.
//
// Lane l has the vectors l, l + lanes, l + 2 lanes, ..., so that a warp moves whole lines of
// memory. The sums of vectors are scanned; the elements wait, as they came, in shared memory, which
// serves each thread as more registers: none reads another's. With `reverse` the scan begins at the
// row's end; vectors lie where they lay, and are aligned in both directions.
#pragma once

#include <dotcu/async.cuh>
#include <dotcu/reduce.cuh>
#include <dotcu/vector.cuh>
#include "message.cuh"
#include "store.cuh"

using namespace dotcu;

template <typename T, typename Out, typename Sum, int width, int vectors, int lanes, bool reverse>
struct strip {
    using V = vector<T, width>;
    V* part;  // this thread's first vector in shared memory; its others are a block's threads apart
    Sum before[vectors];

    // From one vector of a lane to its next, in elements of the row.
    static constexpr int step = (reverse ? -1 : 1) * lanes * width;

    // The place in the row of the vector that a scan comes to as its i-th.
    __device__ static long long place(long long i, long long n) {
        return (reverse ? (n + width - 1) / width - 1 - i : i) * width;
    }

    // How many elements of the vector at `at` lie in the row.
    __device__ static int inside(long long at, long long n) {
        return at < 0 || at >= n ? 0 : n - at < width ? static_cast<int>(n - at) : width;
    }

    // Starts to load; what lies outside of the row is zero. In a row's middle nothing is asked of
    // each vector, which would cost a quarter of the time (measured: H200, 2026-11).
    __device__ void load(const T* row, long long at, long long n) {
        const T* from = row + at;
        if (inside(at, n) == width && inside(at + (vectors - 1) * step, n) == width) {
#pragma unroll
            for (int k = 0; k < vectors; ++k) copy_later(part + k * blockDim.x, from + k * step);
            return;
        }
        for (int k = 0; k < vectors; ++k)
            copy_later(part + k * blockDim.x, from + k * step, inside(at + k * step, n));
    }

    // Finds the sum before each vector; returns that of all.
    __device__ Sum scan() {
        commit_copies();
        wait_for_copies<0>();
        const int lane = threadIdx.x % lanes;
        Sum sum[vectors] = {}, total = 0;
#pragma unroll
        for (int k = 0; k < vectors; ++k) {
            const V v = part[k * blockDim.x];
            for (int j = 0; j < width; ++j) sum[k] += static_cast<Sum>(v[j]);
        }
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

    // Writes the result; `start` is what stands before the strip.
    template <typename Carry>
    __device__ void store(Out* row, long long at, long long n, Carry start) const {
#pragma unroll
        for (int k = 0; k < vectors; ++k) {
            const Sum base = static_cast<Sum>(start + before[k]);
            const V v = part[k * blockDim.x];
            vector<Out, width> y;
            Sum sum = 0;
            for (int j = 0; j < width; ++j) {
                const int here = reverse ? width - 1 - j : j;
                sum += static_cast<Sum>(v[here]);
                y[here] = static_cast<Out>(base + sum);
            }
            const int count = inside(at + k * step, n);
            Out* to = row + at + k * step;
            if (count == width) store_whole(to, y);
#pragma unroll
            for (int j = 0; j < width - 1; ++j) {
                if (count < width && j < count) to[j] = y[j];
            }
        }
    }
};
