// softmax_backward: out[r][j] = y[r][j] * (grad[r][j] - sum over i of grad[r][i] * y[r][i]).
//
//     softmax_backward         grad, y, out: rows of n elements, held by the threads of a row
//     softmax_backward_parts, then softmax_backward_long    the same of any n elements in parts, a
//     block for each
//
// Idea: as in softmax, a row of both inputs stays in registers until its threads have the sum.
//
// Cost: 3 n elements moved for a row (5 n by softmax_backward_long). Bound by memory.
#include <dotcu/grid.cuh>
#include <dotcu/row.cuh>
#include <dotcu/tally.cuh>

// A thread's part of a row: `steps` vectors, `stride` elements apart; 0 beyond them.
template <int stride, int steps, int width, typename T, typename Split>
__device__ void hold(dotcu::vector<T, width> (&x)[steps], const Split& split, const T* row,
                     int input, long long at) {
#pragma unroll
    for (int k = 0; k < steps; ++k, at += stride) {
        x[k] = split.load(at < split.inner, row + split.first + at, input, static_cast<T>(0));
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

template <typename T, int width>
__device__ dotcu::vector<T, width> gradient(dotcu::vector<T, width> g, dotcu::vector<T, width> p,
                                            dotcu::wide<T> sum) {
    dotcu::repack(g);
    dotcu::repack(p);
    auto result = dotcu::widen<dotcu::wide<T>>(g);
    const auto part = dotcu::widen<dotcu::wide<T>>(p);
#pragma unroll
    for (int i = 0; i < width; ++i) result[i] = part[i] * (result[i] - sum);
    return dotcu::to<T>(result);
}

template <int stride, int steps, int width, typename T, typename Split>
__device__ void differentiate(const dotcu::vector<T, width> (&g)[steps],
                              const dotcu::vector<T, width> (&p)[steps], dotcu::wide<T> sum,
                              const Split& split, T* row, long long at) {
#pragma unroll
    for (int k = 0; k < steps; ++k, at += stride) {
        if (at < split.inner) dotcu::store(row + split.first + at, gradient(g[k], p[k], sum));
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
template <typename T, dotcu::row_way way, int width, int steps, int threads, int blocks>
__global__ __launch_bounds__(threads < 64 ? 128 : threads) void softmax_backward(const T* grad,
                                                                                 const T* y, T* out,
                                                                                 long long rows,
                                                                                 long long n) {
    constexpr int per_block = threads < 64 ? 128 / threads : 1, stride = blocks * threads * width;
    const long long row = blockIdx.x / blocks * per_block + threadIdx.x / threads;
    const int me = dotcu::cluster_rank() * threads + threadIdx.x % threads, at = me * width;
    if (row >= rows) n = 0;  // the last block may have threads without a row
    __shared__ dotcu::cluster_mail<dotcu::wide<T>, blocks> mail;
    if constexpr (blocks > 1) mail.open();
    grad += row * n, y += row * n, out += row * n;

    const dotcu::row_split<way, width, 2> split(n, out, grad, y);
    dotcu::vector<T, width> g[steps], p[steps];
    hold<stride>(g, split, grad, 0, at);
    hold<stride>(p, split, y, 1, at);
    dotcu::vector<T, 1> h[split.template edges_of_thread<threads * blocks> + 1] = {};
    dotcu::vector<T, 1> q[split.template edges_of_thread<threads * blocks> + 1] = {};
    split.template each_edge<threads * blocks>(
        me, [&](int k, int i) { h[k][0] = grad[i], q[k][0] = y[i]; });
    auto sum = dot(g, p);
    if constexpr (way != dotcu::aligned) sum += dot(h, q);
    sum = sum_of_row<threads>(sum);
    if constexpr (blocks > 1) {
        mail.send(sum);
        sum = dotcu::reduce_warp<blocks>(mail.get()[threadIdx.x % blocks], dotcu::plus());
    }
    differentiate<stride>(g, p, sum, split, out, at);
    split.template each_edge<threads * blocks>(
        me, [&](int k, int i) { dotcu::store(out + i, gradient(h[k], q[k], sum)); });
}

// The sum of each part of a row, of `share` elements.
template <typename T, dotcu::row_way way, int width, int steps, int threads>
__global__ __launch_bounds__(threads) void softmax_backward_parts(const T* grad, const T* y,
                                                                  dotcu::wide<T>* of_part,
                                                                  long long n, unsigned parts,
                                                                  long long share) {
    dotcu::launch_later();
    constexpr int stride = threads * width;
    const unsigned row = blockIdx.x / parts, part = blockIdx.x % parts;
    grad += row * n, y += row * n;
    const dotcu::row_split<way, width, 2, long long> split(n, grad, grad, y);
    dotcu::vector<T, width> g[steps], p[steps];
    dotcu::vector<T, 1> h[1] = {}, q[1] = {};
    split.template each_edge<threads>(part ? split.most_edges : threadIdx.x,
                                      [&](int, long long i) { h[0][0] = grad[i], q[0][0] = y[i]; });
    dotcu::wide<T> sum = dot(h, q);
    long long at = part * share + threadIdx.x * width;
    for (const long long end = at + share; at < end; at += steps * stride) {
        hold<stride>(g, split, grad, 0, at);
        hold<stride>(p, split, y, 1, at);
        sum += dot(g, p);
    }
    sum = sum_of_row<threads>(sum);
    if (threadIdx.x == 0) of_part[blockIdx.x] = sum;
}

template <typename T, dotcu::row_way way, int width, int steps, int threads>
__global__ __launch_bounds__(threads) void softmax_backward_long(const T* grad, const T* y,
                                                                 const dotcu::wide<T>* of_part,
                                                                 T* out, long long n,
                                                                 unsigned parts, long long share) {
    constexpr int stride = threads * width;
    const unsigned row = blockIdx.x / parts, part = blockIdx.x % parts;
    grad += row * n, y += row * n, out += row * n;
    const dotcu::row_split<way, width, 2, long long> split(n, out, grad, y);
    dotcu::vector<T, width> g[steps], p[steps];
    long long at = part * share + threadIdx.x * width;
    hold<stride>(g, split, grad, 0, at);
    hold<stride>(p, split, y, 1, at);
    dotcu::wait_for_earlier();
    const auto sum =
        sum_of_row<threads>(threadIdx.x < parts ? of_part[row * parts + threadIdx.x] : 0);
    for (const long long end = at + share;;) {
        differentiate<stride>(g, p, sum, split, out, at);
        at += steps * stride;
        if (at >= end) break;
        hold<stride>(g, split, grad, 0, at);
        hold<stride>(p, split, y, 1, at);
    }
    split.template each_edge<threads>(part ? split.most_edges : threadIdx.x, [&](int, long long i) {
        dotcu::store(out + i, gradient(dotcu::load<1>(grad + i), dotcu::load<1>(y + i), sum));
    });
}
