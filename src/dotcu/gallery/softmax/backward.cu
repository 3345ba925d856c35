// softmax_backward: out[r][j] = y[r][j] * (grad[r][j] - sum over i of grad[r][i] * y[r][i]).
//
//     softmax_backward         grad, y, out: rows of n elements, held by the threads of a row
//     softmax_backward_long    grad, y, out: rows of any n elements, a block for each
//
// Idea: as in softmax, a row of both inputs stays in registers until its threads have the sum.
//
// Cost: 3 n elements moved for a row (5 n by softmax_backward_long). Bound by memory.
#include <dotcu/tally.cuh>

// A thread's part of a row: `steps` vectors, `stride` elements apart; 0 beyond n.
template <int stride, int steps, int width, typename T>
__device__ void hold(dotcu::vector<T, width> (&x)[steps], const T* row, int at, int n) {
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
    for (int k = 0; k < steps; ++k) {
        const auto x = dotcu::widen<dotcu::wide<T>>(a[k]), y = dotcu::widen<dotcu::wide<T>>(b[k]);
        dotcu::wide<T> some = 0;
#pragma unroll
        for (int i = 0; i < width; ++i) some += x[i] * y[i];
        sum += some;
    }
    return sum;
}

template <int stride, int steps, int width, typename T>
__device__ void differentiate(const dotcu::vector<T, width> (&grad)[steps],
                              const dotcu::vector<T, width> (&y)[steps], dotcu::wide<T> sum, T* row,
                              int at, int n) {
#pragma unroll
    for (int k = 0; k < steps; ++k, at += stride) {
        auto g = grad[k], p = y[k];
        dotcu::repack(g);
        dotcu::repack(p);
        auto result = dotcu::widen<dotcu::wide<T>>(g);
        const auto part = dotcu::widen<dotcu::wide<T>>(p);
#pragma unroll
        for (int i = 0; i < width; ++i) result[i] = part[i] * (result[i] - sum);
        if (at < n) dotcu::store(row + at, dotcu::to<T>(result));
    }
}

// The sum over the threads of a row, arranged as in the kernel below.
template <int threads, typename Wide>
__device__ Wide sum_of_row(Wide sum) {
    if constexpr (threads <= 32) return dotcu::reduce_warp<threads>(sum, dotcu::plus());
    __shared__ Wide of_warp[threads / 32 + 1];
    return dotcu::reduce_block<(threads < 32 ? 32 : threads)>(sum, of_warp, dotcu::plus());
}

// A row has `threads` in each of the cluster's `blocks`; below 64, several rows share a block.
template <typename T, int width, int steps, int threads, int blocks>
__global__ __launch_bounds__(threads < 64 ? 128 : threads) void softmax_backward(const T* grad,
                                                                                 const T* y, T* out,
                                                                                 long long rows,
                                                                                 long long n) {
    constexpr int per_block = threads < 64 ? 128 / threads : 1, stride = blocks * threads * width;
    const long long row = blockIdx.x / blocks * per_block + threadIdx.x / threads;
    const int at = (dotcu::cluster_rank() * threads + threadIdx.x % threads) * width;
    const long long begin = row * n;
    const int end = row < rows ? n : 0;  // the last block may have threads without a row
    __shared__ dotcu::cluster_mail<dotcu::wide<T>, blocks> mail;
    if constexpr (blocks > 1) mail.open();

    dotcu::vector<T, width> g[steps], p[steps];
    hold<stride>(g, grad + begin, at, end);
    hold<stride>(p, y + begin, at, end);
    auto sum = sum_of_row<threads>(dot(g, p));
    if constexpr (blocks > 1) {
        mail.send(sum);
        sum = dotcu::reduce_warp<blocks>(mail.get()[threadIdx.x % blocks], dotcu::plus());
    }
    differentiate<stride>(g, p, sum, out + begin, at, end);
}

template <typename T, int width, int steps, int threads>
__global__ __launch_bounds__(threads) void softmax_backward_long(const T* grad, const T* y, T* out,
                                                                 long long n) {
    constexpr int stride = threads * width;
    constexpr long long held = steps * stride;
    const long long begin = blockIdx.x * n;
    const int first = threadIdx.x * width;
    dotcu::vector<T, width> g[steps], p[steps];
    dotcu::wide<T> sum = 0;
    for (long long at = 0; at < n; at += held) {
        const int end = static_cast<int>(min(n - at, held));
        hold<stride>(g, grad + begin + at, first, end);
        hold<stride>(p, y + begin + at, first, end);
        sum += dot(g, p);
    }
    sum = sum_of_row<threads>(sum);
    for (long long at = 0; at < n; at += held) {
        const int end = static_cast<int>(min(n - at, held));
        hold<stride>(g, grad + begin + at, first, end);
        hold<stride>(p, y + begin + at, first, end);
        differentiate<stride>(g, p, sum, out + begin + at, first, end);
    }
}
