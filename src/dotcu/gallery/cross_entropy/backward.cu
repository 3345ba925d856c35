// cross_entropy_backward: out[r][j] = (a[r] + b[r]) * p[r][j] - a[r] * (j == target[r]),
//     with p[r][j] = exp(x[r][j] - lse[r]), b[r] the gradient of lse[r], and a[r] that of loss[r].
//
//     cross_entropy_count       target: a class of each row, or `ignored`; count: how many are
//     classes cross_entropy_backward    x, out: rows of n elements; of a mean, a[r] is the loss's
//     over count
//
// Idea: with the log-sum-exp known, every element is independent: no reduction, no wait. A row is
// split into as many parts as necessary; short rows share a block. The count of a mean comes from a
// kernel of one block, which overlaps with the loads of the logits.
//
// Cost: 2 n elements moved for a row, one exp for each. Bound by memory.
#include <dotcu/grid.cuh>
#include <dotcu/row.cuh>
#include <dotcu/tally.cuh>

__global__ __launch_bounds__(1024) void cross_entropy_count(const long long* target, long long rows,
                                                            long long ignored, long long* count) {
    dotcu::launch_later();
    __shared__ long long of_warp[32];
    long long mine = 0;
#pragma unroll 8
    for (long long row = threadIdx.x; row < rows; row += 1024) mine += target[row] != ignored;
    mine = dotcu::reduce_block<1024>(mine, of_warp, dotcu::plus());
    if (threadIdx.x == 0) *count = mine;
}

// The gradient of a vector or an edge at column `at`.
template <typename T, int width>
__device__ dotcu::vector<T, width> gradient(dotcu::vector<T, width> x, long long at,
                                            long long wanted, dotcu::wide<T> log_sum,
                                            dotcu::wide<T> of_loss, dotcu::wide<T> all) {
    dotcu::vector<dotcu::wide<T>, width> y;
#pragma unroll
    for (int i = 0; i < width; ++i) {
        y[i] = all * dotcu::exponential<T>(static_cast<dotcu::wide<T>>(x[i]) - log_sum);
    }
    if (at <= wanted && wanted < at + width) {
#pragma unroll
        for (int i = 0; i < width; ++i) y[i] -= at + i == wanted ? of_loss : 0;
    }
#pragma unroll
    for (int i = 0; i < width; ++i) x[i] = static_cast<T>(y[i]);
    return x;
}

// A part of a row has `threads`; with fewer than 256, several rows share a block. With `each`,
// `grad_loss` has one element for each row, otherwise one in all. `count` is null except for a
// mean.
template <typename T, dotcu::row_way way, int width, int steps, int threads>
__global__ __launch_bounds__(256) void cross_entropy_backward(
    const T* grad_loss, bool each, const dotcu::wide<T>* grad_lse, const T* x,
    const long long* target, const dotcu::wide<T>* lse, const long long* count, T* out,
    long long rows, long long n, unsigned parts, long long ignored) {
    using Wide = dotcu::wide<T>;
    constexpr int stride = threads * width;
    const long long row =
        static_cast<long long>(blockIdx.x / parts) * (256 / threads) + threadIdx.x / threads;
    const long long first =
        static_cast<long long>(blockIdx.x % parts) * steps * stride + threadIdx.x % threads * width;
    if (row >= rows) return;

    x += row * n, out += row * n;
    const dotcu::row_split<way, width, 1, long long> split(n, out, x);
    const int me = blockIdx.x % parts == 0 ? threadIdx.x % threads : split.most_edges;
    dotcu::vector<T, 1> edge[split.template edges_of_thread<threads> + 1];
    split.template each_edge<threads>(me, [&](int k, long long i) { edge[k][0] = x[i]; });
    dotcu::vector<T, width> held[steps];
#pragma unroll
    for (int k = 0; k < steps; ++k) {
        const long long at = first + k * stride;
        held[k] = split.load(at < split.inner, x + split.first + at, 0, static_cast<T>(0));
    }
    const long long wanted = target[row];
    const Wide log_sum = lse[row], of_lse = grad_lse[row];
    Wide of_loss = static_cast<Wide>(grad_loss[each ? row : 0]);
    if (count) {
        dotcu::wait_for_earlier();
        of_loss /= *count;
    }
    if (wanted < 0 || wanted >= n) of_loss = dotcu::infinity - dotcu::infinity;
    if (wanted == ignored) of_loss = 0;
    const Wide all = of_loss + of_lse;

#pragma unroll
    for (int k = 0; k < steps; ++k) {
        const long long at = first + k * stride;
        if (at >= split.inner) continue;
        const auto y = gradient(held[k], split.first + at, wanted, log_sum, of_loss, all);
        dotcu::store(out + split.first + at, y);
    }
    split.template each_edge<threads>(me, [&](int k, long long i) {
        dotcu::store(out + i, gradient(edge[k], i, wanted, log_sum, of_loss, all));
    });
}
