// dotcu/tally.cuh: sums of exponentials for softmax and log-sum-exp, reading a row once.
//
//     dotcu::tally<T> mine;                                  // empty
//     mine.include(x);                                       // x: an array of dotcu::vector
//     __shared__ dotcu::tally<T> of_warp[threads / 32];
//     const auto all = dotcu::join<threads>(mine, of_warp);  // of the whole block, in every thread
//     log_sum_exp = all.base() + log(all.sum);
//
// exp(x) overflows easily, so a sum is relative to the largest element so far, and is rescaled when
// a larger one comes. So a row is read once, in any number of parts, which are joined. Source:
// Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
#pragma once

#include <dotcu/cluster.cuh>
#include <dotcu/vector.cuh>

namespace dotcu {

constexpr float infinity = __builtin_bit_cast(float, 0x7f800000);

namespace detail {

template <typename T>
struct wide {
    using type = float;
};
template <>
struct wide<double> {
    using type = double;
};

}  // namespace detail

// The type in which elements of T are computed: float, or double for double.
template <typename T>
using wide = typename detail::wide<T>::type;

// 2^up exp(x), as accurate as T can represent. For half types it is one instruction, which flushes
// results below 2^-126 to zero; `up` scales up results that must not be flushed.
template <typename T, int up = 0>
__device__ wide<T> exponential(wide<T> x) {
    if constexpr (sizeof(T) == 2) {
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(fmaf(x, 1.44269504f, up)));
        return x;
    } else {
        static_assert(up == 0, "only half types need it");
        return exp(x);
    }
}

// The larger of each two elements, or the one that is not NaN. For half types one instruction
// compares two.
template <typename T, int n>
__device__ vector<T, n> larger(vector<T, n> a, const vector<T, n>& b) {
    if constexpr (sizeof(T) == 2 && n > 1) {
        unsigned x[n / 2], y[n / 2];
        memcpy(x, a.lane, sizeof(x));
        memcpy(y, b.lane, sizeof(y));
        for (int k = 0; k < n / 2; ++k) {
            if constexpr (detail::is_bfloat16<T>) {
                asm("max.bf16x2 %0, %0, %1;" : "+r"(x[k]) : "r"(y[k]));
            } else {
                asm("max.f16x2 %0, %0, %1;" : "+r"(x[k]) : "r"(y[k]));
            }
        }
        memcpy(a.lane, x, sizeof(x));
    } else {
        for (int k = 0; k < n; ++k) {
            a[k] = static_cast<T>(fmax(static_cast<wide<T>>(a[k]), static_cast<wide<T>>(b[k])));
        }
    }
    return a;
}

// The largest of some elements of a row, and the sum of exp(x - base()). Only the sum becomes NaN
// if an element is NaN.
template <typename T>
struct tally {
    wide<T> largest = -infinity, sum = 0;

    // The largest element, or 0 where that is infinite: base() + log(sum) is right for these too.
    __device__ wide<T> base() const { return fabs(largest) == infinity ? 0 : largest; }

    template <int width, int steps>
    __device__ void include(const vector<T, width> (&x)[steps]) {
        const wide<T> before = largest;
        vector<T, width> most = x[0];
#pragma unroll
        for (int k = 1; k < steps; ++k) most = dotcu::larger(most, x[k]);
        const auto widest = widen<wide<T>>(most);
#pragma unroll
        for (int i = 0; i < width; ++i) largest = fmax(largest, widest[i]);
        wide<T> more = 0;  // per vector: shorter chains of additions lose less
#pragma unroll
        for (int k = 0; k < steps; ++k) {
            const auto part = widen<wide<T>>(x[k]);
            wide<T> some = 0;
#pragma unroll
            for (int i = 0; i < width; ++i) some += exponential<T>(part[i] - base());
            more += some;
        }
        sum = sum * exponential<T>(before - base()) + more;
    }
};

// Joins the tallies of `lanes` neighbouring lanes, a power of two. All lanes of the warp call it.
template <int lanes, typename T>
__device__ tally<T> join_warp(tally<T> mine) {
    tally<T> all;
    all.largest = reduce_warp<lanes>(mine.largest, [](wide<T> a, wide<T> b) { return fmax(a, b); });
    mine.sum *= exponential<T>(mine.largest - all.base());
    all.sum = reduce_warp<lanes>(mine.sum, plus());
    return all;
}

// Joins the tallies of a row's `threads`: up to 32 are lanes of a warp, which other rows may share;
// more are a block. `of_warp` is shared memory, one tally for each warp of the row; the next row
// needs another array.
template <int threads, typename T>
__device__ tally<T> join(tally<T> mine, tally<T>* of_warp) {
    mine = join_warp<(threads < warp_size ? threads : warp_size)>(mine);
    if constexpr (threads > warp_size) {
        const int lane = threadIdx.x % warp_size;
        if (lane == 0) of_warp[threadIdx.x / warp_size] = mine;
        __syncthreads();
        mine = join_warp<threads / warp_size>(of_warp[lane % (threads / warp_size)]);
    }
    return mine;
}

// Joins the tallies of the blocks of a cluster.
template <typename T, int blocks>
__device__ tally<T> join(const tally<T>& of_block, cluster_mail<tally<T>, blocks>& mail) {
    mail.send(of_block);
    return join_warp<blocks>(mail.get()[threadIdx.x % blocks]);
}

}  // namespace dotcu
