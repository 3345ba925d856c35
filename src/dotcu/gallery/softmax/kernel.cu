// softmax: out[r][j] = exp(x[r][j] - max x[r]) / sum over i of exp(x[r][i] - max x[r]).
//
//     softmax         x, out: rows of n elements, all held by the row's threads
//     softmax_parts, then softmax_long    x, out: rows of any n elements in parts, a block for each
//
// Idea: a row is read once and stays in registers while its threads compute two numbers: the
// largest element, and the sum of exp relative to it. Each thread starts with its own elements.
// These tallies are joined over the lanes of a warp by shuffles, then in one step over all warps of
// the row, in a block or in a cluster of blocks that write to each other's shared memory. Short
// rows share a warp, long ones get a cluster. Longer ones are read twice, in parts: for the tally
// of each, then to divide.
//
// Cost: 2 n elements moved for a row (3 n by softmax_long), and 2 exp for an element: the second
// costs less than the registers that would keep the first. Bound by memory.
// Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; for rows over
// clusters Dao and others, "Getting Memory-bound Kernels to Speed-of-Light" (QuACK), 2025.
#include "parts.cuh"

// A row has `threads` in each of the cluster's `blocks`; below 64, several rows share a block.
template <typename T, dotcu::row_way way, int width, int steps, int threads, int blocks>
__global__ __launch_bounds__(threads < 64 ? 128 : threads) void softmax(const T* x, T* out,
                                                                        long long rows,
                                                                        long long n) {
    constexpr int per_block = threads < 64 ? 128 / threads : 1, stride = blocks * threads * width;
    const long long row = blockIdx.x / blocks * per_block + threadIdx.x / threads;
    const int me = dotcu::cluster_rank() * threads + threadIdx.x % threads, at = me * width;
    if (row >= rows) n = 0;  // the last block may have threads without a row
    __shared__ dotcu::tally<T> of_warp[threads / 32 + 1];
    __shared__ dotcu::cluster_mail<dotcu::tally<T>, blocks> mail;
    if constexpr (blocks > 1) mail.open();
    x += row * n, out += row * n;

    const dotcu::row_split<way, width> split(n, out, x);
    dotcu::vector<T, width> held[steps];
    hold<stride>(held, split, x, at);
    dotcu::vector<T, 1> edge[split.template edges_of_thread<threads * blocks> + 1];
    for (auto& one : edge) one[0] = static_cast<T>(-dotcu::infinity);
    split.template each_edge<threads * blocks>(me, [&](int k, int i) { edge[k][0] = x[i]; });
    dotcu::tally<T> mine;
    mine.include(held);
    if constexpr (way != dotcu::aligned) mine.include(edge);
    auto all = dotcu::join<threads>(mine, of_warp);
    if constexpr (blocks > 1) all = dotcu::join(all, mail);
    divide<stride>(held, all, split, out, at);
    split.template each_edge<threads * blocks>(
        me, [&](int k, int i) { dotcu::store(out + i, quotients(edge[k], all)); });
}

// The tally of each part of a row, of `share` elements.
template <typename T, dotcu::row_way way, int width, int steps, int threads>
__global__ __launch_bounds__(threads) void softmax_parts(const T* x, dotcu::tally<T>* of_part,
                                                         long long n, unsigned parts,
                                                         long long share) {
    dotcu::launch_later();
    constexpr int stride = threads * width;
    x += blockIdx.x / parts * n;
    const dotcu::row_split<way, width, 1, long long> split(n, x, x);
    dotcu::vector<T, width> held[steps];
    dotcu::tally<T> mine;
    long long at = blockIdx.x % parts * share + threadIdx.x * width;
    for (const long long end = at + share; at < end; at += steps * stride) {
        hold<stride>(held, split, x, at);
        mine.include(held);
    }
    dotcu::vector<T, 1> edge[1] = {{static_cast<T>(-dotcu::infinity)}};
    split.template each_edge<threads>(blockIdx.x % parts ? split.most_edges : threadIdx.x,
                                      [&](int, long long i) { edge[0][0] = x[i]; });
    mine.include(edge);
    __shared__ dotcu::tally<T> of_warp[threads / 32];
    mine = dotcu::join<threads>(mine, of_warp);
    if (threadIdx.x == 0) of_part[blockIdx.x] = mine;
}

template <typename T, dotcu::row_way way, int width, int steps, int threads>
__global__ __launch_bounds__(threads) void softmax_long(const T* x, const dotcu::tally<T>* of_part,
                                                        T* out, long long n, unsigned parts,
                                                        long long share) {
    constexpr int stride = threads * width;
    const unsigned row = blockIdx.x / parts, part = blockIdx.x % parts;
    x += row * n, out += row * n;
    const dotcu::row_split<way, width, 1, long long> split(n, out, x);
    dotcu::vector<T, width> held[steps];
    long long at = part * share + threadIdx.x * width;
    hold<stride>(held, split, x, at);
    dotcu::wait_for_earlier();
    __shared__ dotcu::tally<T> of_warp[threads / 32];
    dotcu::tally<T> all;
    if (threadIdx.x < parts) all = of_part[row * parts + threadIdx.x];
    all = dotcu::join<threads>(all, of_warp);
    for (const long long end = at + share;;) {
        divide<stride>(held, all, split, out, at);
        at += steps * stride;
        if (at >= end) break;
        hold<stride>(held, split, x, at);
    }
    split.template each_edge<threads>(part ? split.most_edges : threadIdx.x, [&](int, long long i) {
        dotcu::store(out + i, quotients(dotcu::load<1>(x + i), all));
    });
}
