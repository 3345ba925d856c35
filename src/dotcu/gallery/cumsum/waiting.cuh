// waiting.cuh: vectors of a row, staged in shared memory.
//
// Lane l has the vectors l, l + lanes, l + 2 lanes, ..., so that a warp moves whole lines of
// memory. Shared memory serves as additional registers: each thread reads only its own vectors.
// With `reverse` the first vector is the last of the row; vectors keep their place in memory, and
// so their alignment, in both directions. A row that begins anywhere (row_way of dotcu/row.cuh)
// has the vectors of the result, its first and last one in part. Where x lies otherwise than the
// result (`apart`), words of x are copied, and each vector comes from two of them.
#pragma once

#include <dotcu/async.cuh>
#include <dotcu/row.cuh>

using namespace dotcu;

template <typename T, int width, int vectors, int lanes, row_way way, bool reverse>
struct waiting {
    using V = vector<T, width>;

    // The vectors of the lanes in shared memory, and a word more that the last one may need.
    static constexpr int places = lanes * vectors + (way == apart);
    // The distance between two vectors of a lane, in elements of the row; to the next in memory.
    static constexpr int step = (reverse ? -1 : 1) * lanes * width, next = reverse ? -1 : 1;

    V* part;  // this thread's first vector in shared memory; the next ones are `lanes` apart
    int by;   // the elements from the beginning of a word to that of a vector

    __device__ void take(V* of_lanes) {
        part = of_lanes + (way == apart && reverse) + threadIdx.x % lanes;
    }

    // The column of the i-th vector of a row, in the order of the scan.
    template <typename Out>
    __device__ static long long place(long long i, long long n, const Out* row) {
        const int before = way == aligned ? 0 : lane_of(row);
        return (reverse ? (n + before + width - 1) / width - 1 - i : i) * width - before;
    }

    __device__ static bool whole(long long i, long long n) { return i >= 0 && i + width <= n; }

    // Starts to load; elements outside of the row become zero. Inside a row no vector is tested. At
    // its ends the loop is not unrolled, which saves registers.
    __device__ void load(const T* row, long long at, long long n) {
        by = way == apart ? lane_of(row + at) : 0;
        at -= by;
        const bool more = way == apart && threadIdx.x % lanes == (reverse ? 0 : lanes - 1);
        const long long last = at + (vectors - 1) * step, end = (reverse ? at : last) + width;
        if (whole(at, n) && whole(last, n) && (!more || whole(end, n))) {
#pragma unroll
            for (int k = 0; k < vectors; ++k) copy_later(part + k * lanes, row + at + k * step);
            if (more) copy_later(part + (reverse ? 0 : vectors - 1) * lanes + next, row + end);
            return;
        }
#pragma unroll 1
        for (int k = 0; k < vectors + more; ++k) {
            const bool extra = k == vectors;
            const long long i = extra ? end : at + k * step;
            V* to = extra ? part + (reverse ? 0 : vectors - 1) * lanes + next : part + k * lanes;
            copy_inside_later(to, row, i, n);
        }
    }

    // Waits for the loads of this thread. Lanes of a warp call it together.
    __device__ void wait() const {
        commit_copies();
        wait_for_copies<0>();
        if constexpr (way == apart) {
            __syncwarp();
#pragma unroll
            for (int k = reverse ? vectors - 1 : 0; k >= 0 && k < vectors; k += next) {
                V* const word = part + k * lanes;
                const V value = between(word[0], word[next], by);
                __syncwarp();
                *word = value;
            }
        }
    }
};
