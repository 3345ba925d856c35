// Sums over ranks, of elements that were loaded or that came by mail. The order is that of the
// ranks, so all have the same bits. Half types are added up as float.
#pragma once

#include <dotcu/grid.cuh>
#include <dotcu/peers.cuh>
#include <dotcu/tally.cuh>
#include <dotcu/vector.cuh>

template <typename T, int lanes, int ranks>
__device__ dotcu::vector<dotcu::wide<T>, lanes> add_up(const dotcu::vector<T, lanes> (&x)[ranks]) {
    auto sum = dotcu::widen<dotcu::wide<T>>(x[0]);
#pragma unroll
    for (int r = 1; r < ranks; ++r) {
        const auto next = dotcu::widen<dotcu::wide<T>>(x[r]);
#pragma unroll
        for (int k = 0; k < lanes; ++k) sum[k] += next[k];
    }
    return sum;
}

// Vectors or letters of each rank that a thread has on their way: as a link's latency needs, which
// one rank alone does not have.
template <int ranks>
constexpr int at_once = ranks == 1  ? 4
                        : ranks < 8 ? 8 / ranks
                                    : 1;

// Calls done(v, sum) for each of the vectors from `first` to `last` of all ranks' tensors.
template <typename T, int lanes, int ranks, typename Done>
__device__ void add_peers(const T* const* tensors, long long first, long long last, Done done) {
    constexpr int steps = at_once<ranks>;
    const long long stride = dotcu::threads_of_grid();
    for (long long v = first + dotcu::thread_of_grid(); v < last; v += steps * stride) {
        dotcu::vector<T, lanes> x[steps][ranks];
#pragma unroll
        for (int i = 0; i < steps; ++i)
#pragma unroll
            for (int r = 0; r < ranks; ++r)
                if (v + i * stride < last)
                    x[i][r] = dotcu::load<lanes>(tensors[r] + (v + i * stride) * lanes);
#pragma unroll
        for (int i = 0; i < steps; ++i)
            if (v + i * stride < last) done(v + i * stride, dotcu::to<T>(add_up(x[i])));
    }
}

// Elements of a letter.
template <typename T>
constexpr int letter_lanes = 8 / sizeof(T);

template <typename T>
using letter_of = dotcu::vector<T, letter_lanes<T>>;

// The elements of a letter at `at` of n, zeros beyond the last one. `whole`: x and n are multiples
// of 8 bytes.
template <typename T>
__device__ uint2 pack(const T* x, long long at, long long n, bool whole) {
    if (whole) return at < n ? *reinterpret_cast<const uint2*>(x + at) : uint2{0, 0};
    letter_of<T> value;
#pragma unroll
    for (int k = 0; k < letter_lanes<T>; ++k) value[k] = at + k < n ? x[at + k] : T(0.0f);
    return __builtin_bit_cast(uint2, value);
}

template <typename T>
__device__ void unpack(T* to, long long at, long long n, bool whole, const letter_of<T>& value) {
    if (whole) {
        if (at < n) dotcu::store(to + at, value);
    } else {
#pragma unroll
        for (int k = 0; k < letter_lanes<T>; ++k)
            if (at + k < n) to[at + k] = value[k];
    }
}

// The sums of this rank's letters and of what the others sent, at `count` places from `first` on.
template <typename T, int count, int ranks>
__device__ void add_mail(const dotcu::mail<ranks>& mail, long long first, long long stride,
                         long long end, int rank, const uint2* own,
                         dotcu::vector<dotcu::wide<T>, letter_lanes<T>>* sums) {
    uint2 data[count][ranks];
    mail.template receive<count>(first, stride, end, data);
#pragma unroll
    for (int i = 0; i < count; ++i) {
        letter_of<T> x[ranks];
#pragma unroll
        for (int r = 0; r < ranks; ++r)
            x[r] = __builtin_bit_cast(letter_of<T>, r == rank ? own[i] : data[i][r]);
        sums[i] = add_up(x);
    }
}
