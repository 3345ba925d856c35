// softmax_backward: out[r][j] = y[r][j] * (grad[r][j] - sum over i of grad[r][i] * y[r][i]).
//
//     softmax_backward         grad, y, out: rows of n elements, held by the threads of a row
//     softmax_backward_long    grad, y, out: rows of any n elements, a block for each
//
// Idea: as for softmax, a row of both stays in registers until its threads have agreed on the sum.
//
// Cost: 3 n elements moved for a row (5 n by softmax_backward_long). Bound by memory.
#include <dotcu/tally.cuh>

// A thread's share of a row: `steps` vectors, each `stride` after the one before; 0 behind n.
template <int stride, int steps, int width, typename T>
__device__ void hold(dotcu::vector<T, width> (&x)[steps], const T* row, long long at, long long n) {
#pragma unroll
    for (int k = 0; k < steps; ++k, at += stride) {
        x[k] = dotcu::load_if<width>(at < n, row + at, static_cast<T>(0));
    }
}

template <int steps, int width, typename T>
__device__ dotcu::wide<T> dot(const dotcu::vector<T, width> (&a)[steps],
                              const dotcu::vector<T, width> (&b)[steps]) {
    dotcu::wide<T> sum = 0;
#pragma unroll
    for (int k = 0; k < steps * width; ++k) {
        const T x = a[k / width][k % width], y = b[k / width][k % width];
        sum += static_cast<dotcu::wide<T>>(x) * static_cast<dotcu::wide<T>>(y);
    }
    return sum;
}

template <int stride, int steps, int width, typename T>
__device__ void differentiate(const dotcu::vector<T, width> (&grad)[steps],
                              const dotcu::vector<T, width> (&y)[steps], dotcu::wide<T> sum, T* row,
                              long long at, long long n) {
#pragma unroll
    for (int k = 0; k < steps; ++k, at += stride) {
        auto g = grad[k], p = y[k];
        dotcu::repack(g);
        dotcu::repack(p);
#pragma unroll
        for (int i = 0; i < width; ++i) {
            const auto beside = static_cast<dotcu::wide<T>>(g[i]) - sum;
            g[i] = static_cast<T>(static_cast<dotcu::wide<T>>(p[i]) * beside);
        }
        if (at < n) dotcu::store(row + at, g);
    }
}

// The sum over the threads of a row, as they are laid out in the kernel below.
template <int threads, int blocks, typename Wide>
__device__ Wide sum_of_row(Wide sum) {
    if constexpr (threads <= 32) return dotcu::reduce_warp<threads>(sum, dotcu::plus());
    __shared__ Wide of_warp[threads / 32 + 1], of_block[blocks];
    sum = dotcu::reduce_block<(threads < 32 ? 32 : threads)>(sum, of_warp, dotcu::plus());
    if constexpr (blocks > 1) {
        dotcu::cluster_wait();
        sum = dotcu::reduce_cluster(sum, of_block, dotcu::plus());
    }
    return sum;
}

// A row has `threads` in each of `blocks`, a cluster; with fewer than 64, several rows are a block.
template <typename T, int width, int steps, int threads, int blocks>
__global__ __launch_bounds__(threads < 64 ? 128 : threads) void softmax_backward(const T* grad,
                                                                                 const T* y, T* out,
                                                                                 long long rows,
                                                                                 long long n) {
    constexpr int per_block = threads < 64 ? 128 / threads : 1, stride = blocks * threads * width;
    const long long row = blockIdx.x / blocks * per_block + threadIdx.x / threads;
    const int at = (dotcu::cluster_rank() * threads + threadIdx.x % threads) * width;
    const long long begin = row * n;
    if (row >= rows) n = 0;  // the last block may have threads without a row
    if constexpr (blocks > 1) dotcu::cluster_arrive();

    dotcu::vector<T, width> g[steps], p[steps];
    hold<stride>(g, grad + begin, at, n);
    hold<stride>(p, y + begin, at, n);
    differentiate<stride>(g, p, sum_of_row<threads, blocks>(dot(g, p)), out + begin, at, n);
}

template <typename T, int width, int steps, int threads>
__global__ __launch_bounds__(threads) void softmax_backward_long(const T* grad, const T* y, T* out,
                                                                 long long n) {
    constexpr int stride = threads * width;
    const long long begin = blockIdx.x * n;
    dotcu::vector<T, width> g[steps], p[steps];
    dotcu::wide<T> sum = 0;
    for (long long at = threadIdx.x * width; at < n; at += steps * stride) {
        hold<stride>(g, grad + begin, at, n);
        hold<stride>(p, y + begin, at, n);
        sum += dot(g, p);
    }
    sum = sum_of_row<threads, 1>(sum);
    for (long long at = threadIdx.x * width; at < n; at += steps * stride) {
        hold<stride>(g, grad + begin, at, n);
        hold<stride>(p, y + begin, at, n);
        differentiate<stride>(g, p, sum, out + begin, at, n);
    }
}
