// waiting.cuh: vectors of a row, staged in shared memory.
//
// Lane l has the vectors l, l + lanes, l + 2 lanes, ..., so that a warp moves whole lines of
// memory. Shared memory serves as additional registers: each thread reads only its own vectors.
// With `reverse` the first vector is the last of the row; vectors keep their place in memory, and
// so their alignment, in both directions.
#pragma once

#include <dotcu/async.cuh>
#include <dotcu/vector.cuh>

using namespace dotcu;

template <typename T, int width, int vectors, int lanes, int threads, bool reverse>
struct waiting {
    using V = vector<T, width>;
    V* part;  // this thread's first vector in shared memory; the next ones are `threads` apart

    // The distance between two vectors of a lane, in elements of the row.
    static constexpr int step = (reverse ? -1 : 1) * lanes * width;

    // The index of the first element of the i-th vector, in the order of the scan.
    __device__ static long long place(long long i, long long n) {
        return (reverse ? (n + width - 1) / width - 1 - i : i) * width;
    }

    // The number of elements of the vector at `at` that are in the row.
    __device__ static int inside(long long at, long long n) {
        return at < 0 || at >= n ? 0 : n - at < width ? static_cast<int>(n - at) : width;
    }

    // Starts to load; elements outside of the row become zero. Inside a row no vector is tested. At
    // its end the loop is not unrolled, which saves registers.
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

    // Waits for the loads of this thread.
    __device__ void wait() const {
        commit_copies();
        wait_for_copies<0>();
    }
};
