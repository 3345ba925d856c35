// softmax: out[r][j] = exp(x[r][j] - max x[r]) / sum over i of exp(x[r][i] - max x[r]).
//
//     softmax         x, out: rows of n elements, all held by the row's threads
//     softmax_long    x, out: rows of any n elements, a block for each
//
// Idea: a row is read once and stays in registers while its threads compute two numbers: the
// largest element, and the sum of exp relative to it. Each thread starts with its own elements.
// These tallies are joined over the lanes of a warp by shuffles, then in one step over all warps of
// the row, in a block or in a cluster of blocks that write to each other's shared memory. Short
// rows share a warp, long ones get a cluster; softmax_long reads longer ones twice.
//
// Cost: 2 n elements moved for a row (3 n by softmax_long), and 2 exp for an element: the second
// costs less than the registers that would keep the first. Bound by memory.
// Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; for rows over
// clusters Dao and others, "Getting Memory-bound Kernels to Speed-of-Light" (QuACK), 2025.
#include <dotcu/tally.cuh>

// bfloat16 has results that are subnormal floats: intermediate values are 2^lift times as large.
template <typename T>
constexpr int lift = sizeof(T) == 2 ? 24 : 0;

// A thread's part of a row: `steps` vectors, `stride` elements apart; -inf beyond n.
template <int stride, int steps, int width, typename T>
__device__ void hold(dotcu::vector<T, width> (&x)[steps], const T* row, long long at, long long n) {
#pragma unroll
    for (int k = 0; k < steps; ++k, at += stride) {
        x[k] = dotcu::load_if<width>(at < n, row + at, static_cast<T>(-dotcu::infinity));
    }
}

// Writes exp(x) over the row's sum. As in torch, a row with +inf is NaN, and so is a row of -inf.
template <int stride, int steps, int width, typename T>
__device__ void divide(const dotcu::vector<T, width> (&x)[steps], const dotcu::tally<T>& all,
                       T* row, long long at, long long n) {
    const auto sum = all.largest == dotcu::infinity ? all.sum - all.sum : all.sum;
    const auto scale = 1 / (sum * (1 << lift<T>));
#pragma unroll
    for (int k = 0; k < steps; ++k, at += stride) {
        auto part = x[k];
        dotcu::repack(part);
        auto y = dotcu::widen<dotcu::wide<T>>(part);
#pragma unroll
        for (int i = 0; i < width; ++i) {
            y[i] = dotcu::exponential<T, lift<T>>(y[i] - all.base()) * scale;
        }
        if (at < n) dotcu::store(row + at, dotcu::to<T>(y));
    }
}

// A row has `threads` in each of the cluster's `blocks`; below 64, several rows share a block.
template <typename T, int width, int steps, int threads, int blocks>
__global__ __launch_bounds__(threads < 64 ? 128 : threads) void softmax(const T* x, T* out,
                                                                        long long rows,
                                                                        long long n) {
    constexpr int per_block = threads < 64 ? 128 / threads : 1, stride = blocks * threads * width;
    const long long row = blockIdx.x / blocks * per_block + threadIdx.x / threads;
    const int at = (dotcu::cluster_rank() * threads + threadIdx.x % threads) * width;
    if (row >= rows) n = 0;  // the last block may have threads without a row
    __shared__ dotcu::tally<T> of_warp[threads / 32 + 1];
    __shared__ dotcu::cluster_mail<dotcu::tally<T>, blocks> mail;
    if constexpr (blocks > 1) mail.open();

    dotcu::vector<T, width> held[steps];
    hold<stride>(held, x + row * n, at, n);
    dotcu::tally<T> mine;
    mine.include(held);
    auto all = dotcu::join<threads>(mine, of_warp);
    if constexpr (blocks > 1) all = dotcu::join(all, mail);
    divide<stride>(held, all, out + row * n, at, n);
}

template <typename T, int width, int steps, int threads>
__global__ __launch_bounds__(threads) void softmax_long(const T* x, T* out, long long n) {
    constexpr int stride = threads * width;
    const T* row = x + blockIdx.x * n;
    dotcu::vector<T, width> held[steps];
    dotcu::tally<T> mine;
    for (long long at = threadIdx.x * width; at < n; at += steps * stride) {
        hold<stride>(held, row, at, n);
        mine.include(held);
    }
    __shared__ dotcu::tally<T> of_warp[threads / 32];
    const auto all = dotcu::join<threads>(mine, of_warp);
    for (long long at = threadIdx.x * width; at < n; at += steps * stride) {
        hold<stride>(held, row, at, n);
        divide<stride>(held, all, out + blockIdx.x * n, at, n);
    }
}
