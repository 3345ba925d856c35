// waiting.cuh: vectors of a row that wait in shared memory, where they came from global memory.
//
// Lane l has the vectors l, l + lanes, l + 2 lanes, ..., so that a warp moves whole lines of
// memory. They serve each thread as more registers: none reads another's. With `reverse` the first
// vector is the row's last; vectors lie where they lay, and are aligned in both directions.
#pragma once

#include <dotcu/async.cuh>
#include <dotcu/vector.cuh>

using namespace dotcu;

template <typename T, int width, int vectors, int lanes, int threads, bool reverse>
struct waiting {
    using V = vector<T, width>;
    V* part;  // this thread's first vector in shared memory; its others are a block's threads apart

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
    // each vector. At its end one vector's code serves all, which leaves registers for others.
    __device__ void load(const T* row, long long at, long long n) {
        const T* from = row + at;
        if (inside(at, n) == width && inside(at + (vectors - 1) * step, n) == width) {
#pragma unroll
            for (int k = 0; k < vectors; ++k) copy_later(part + k * threads, from + k * step);
            return;
        }
#pragma unroll 1
        for (int k = 0; k < vectors; ++k)
            copy_later(part + k * threads, from + k * step, inside(at + k * step, n));
    }

    // Until what this thread loads is there.
    __device__ void wait() const {
        commit_copies();
        wait_for_copies<0>();
    }
};
