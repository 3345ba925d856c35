// cross_entropy: loss[r] = lse[r] - x[r][target[r]], with lse[r] = log(sum over j of exp(x[r][j])).
//
//     cross_entropy           x: rows of n logits; target: a class of each row, or `ignored`
//     cross_entropy_reduce    totals, counts: the sums of each block of cross_entropy
//
// Idea: a stream of reads. The threads of a row keep the largest logit so far and the sum of exp
// relative to it, so they read each logit once, and combine their values at the end of the row. As
// many blocks as fit on the GPU loop over the rows, and each writes one sum of losses. The second
// kernel adds up these few in a fixed order, and starts before the first has ended.
//
// A target that is not a class gives NaN: no memory outside of the row is read.
//
// Cost: n elements read for a row, one exp for each. Bound by memory.
#include <dotcu/grid.cuh>
#include <dotcu/row.cuh>
#include <dotcu/tally.cuh>

// The loss of a row. The large terms are subtracted first, so that their difference is exact. As in
// torch, a row with an infinite log-sum-exp has the loss NaN.
template <typename T>
__device__ dotcu::wide<T> loss_of(const dotcu::tally<T>& all, const T* row, long long target,
                                  long long n, long long ignored) {
    if (target == ignored) return 0;
    if (target < 0 || target >= n || fabs(all.largest) == dotcu::infinity) {
        return dotcu::infinity - dotcu::infinity;
    }
    return (all.base() - static_cast<dotcu::wide<T>>(row[target])) + log(all.sum);
}

// A row has `threads`; with fewer than 256, several rows share a block. Writes either the loss of
// each row to `losses`, or the block's sum and count of rows that are not ignored to `totals` and
// `counts`.
template <typename T, dotcu::row_way way, int width, int steps, int threads>
__global__ __launch_bounds__(256) void cross_entropy(const T* x, const long long* target,
                                                     dotcu::wide<T>* lse, T* losses,
                                                     dotcu::wide<T>* totals, long long* counts,
                                                     long long rows, long long n,
                                                     long long ignored) {
    constexpr int per_block = 256 / threads, stride = threads * width;
    __shared__ dotcu::tally<T> of_warp[2][8];
    dotcu::wide<T> total = 0;
    long long count = 0;
    int turn = 0;
    for (long long first = blockIdx.x * per_block; first < rows; first += gridDim.x * per_block) {
        const long long row = first + threadIdx.x / threads;
        const T* logits = x + row * n;
        const bool speaks = threadIdx.x % threads == 0 && row < rows;
        const long long wanted = speaks ? target[row] : 0;
        const dotcu::row_split<way, width, 1, long long> split(row < rows ? n : 0, logits, logits);
        const T lowest = static_cast<T>(-dotcu::infinity);
        const int me = threadIdx.x % threads;
        dotcu::tally<T> mine;
        dotcu::vector<T, 1> edge[split.template edges_of_thread<threads> + 1];
        for (auto& one : edge) one[0] = lowest;
        split.template each_edge<threads>(me, [&](int k, long long i) { edge[k][0] = logits[i]; });
        for (long long start = 0; start < n; start += steps * stride) {
            dotcu::vector<T, width> part[steps];
#pragma unroll
            for (int k = 0; k < steps; ++k) {
                const long long at = start + k * stride + me * width;
                part[k] = split.load(at < split.inner, logits + split.first + at, 0, lowest);
            }
            mine.include(part);
        }
        if constexpr (way != dotcu::aligned) mine.include(edge);
        const auto all = dotcu::join<threads>(mine, of_warp[turn ^= 1]);
        if (speaks) {
            const auto loss = loss_of(all, logits, wanted, n, ignored);
            lse[row] = all.base() + log(all.sum);
            if (losses) losses[row] = static_cast<T>(loss);
            total += loss;
            count += wanted != ignored;
        }
    }
    if (losses) return;
    dotcu::launch_later();
    __shared__ dotcu::wide<T> total_of_warp[8];
    __shared__ long long count_of_warp[8];
    total = dotcu::reduce_block<256>(total, total_of_warp, dotcu::plus());
    count = dotcu::reduce_block<256>(count, count_of_warp, dotcu::plus());
    if (threadIdx.x == 0) totals[blockIdx.x] = total;
    if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

// The sum of all losses, or their mean (NaN if there are none). One block.
template <typename T>
__global__ __launch_bounds__(256) void cross_entropy_reduce(const dotcu::wide<T>* totals,
                                                            const long long* counts, int blocks,
                                                            bool mean, T* loss) {
    dotcu::wait_for_earlier();
    dotcu::wide<T> total = 0;
    long long count = 0;
    for (int i = threadIdx.x; i < blocks; i += 256) total += totals[i], count += counts[i];
    __shared__ dotcu::wide<T> total_of_warp[8];
    __shared__ long long count_of_warp[8];
    total = dotcu::reduce_block<256>(total, total_of_warp, dotcu::plus());
    count = dotcu::reduce_block<256>(count, count_of_warp, dotcu::plus());
    if (threadIdx.x == 0) *loss = static_cast<T>(mean ? total / count : total);
}
