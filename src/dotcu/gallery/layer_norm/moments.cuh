// moments.cuh: mean and squares of a row in one pass, with more digits than a float has.
//
// Each warp computes the sums of x - pivot and of its square about its own pivot, the mean of some
// of its elements: close to them all, so that no digits are lost. Sums about one pivot give those
// about another, so the warps of a row synchronize once, not for the mean and again for the
// squares. Source: Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing
// Sample Variances", 1979.
#pragma once

#include <dotcu/row.cuh>
#include <dotcu/vector.cuh>

template <typename Sum>
struct Moments {
    Sum count, pivot, offs, squares;  // of x - pivot: its sum, and that of its square

    // Adds the sums of more elements; the caller counts them.
    template <int n>
    __device__ void include(const dotcu::vector<Sum, n>& x) {
        Sum more = 0, more_squares = 0;
        for (int k = 0; k < n; ++k) {
            const Sum off = x[k] - pivot;
            more += off, more_squares += off * off;
        }
        offs += more, squares += more_squares;
    }

    // Returns the same sums about another pivot.
    __device__ Moments about(Sum other) const {
        const Sum shift = pivot - other;
        const Sum moved = offs + count * shift;
        return {count, other, moved, squares + shift * (offs + moved)};
    }
};

// Returns the moments of a row about its mean, from those of its warps. `share`: 1 / n.
template <int lanes, typename Sum>
__device__ Moments<Sum> join(const Moments<Sum>& mine, Moments<Sum>* all, Sum share) {
    if constexpr (lanes <= dotcu::warp_size) return mine;
    dotcu::share_row<lanes>(mine, all);
    constexpr int warps = dotcu::row_warps<lanes>;
    const int end = warps * dotcu::cluster_blocks();
    Sum sum = 0, offs = 0, squares = 0;
#pragma unroll 1
    for (int w = threadIdx.x % warps; w < end; w += warps) {
        sum += all[w].count * all[w].pivot + all[w].offs;
    }
    const Sum mean = dotcu::reduce_warp<warps>(sum, dotcu::plus()) * share;
#pragma unroll 1
    for (int w = threadIdx.x % warps; w < end; w += warps) {
        const auto moved = all[w].about(mean);
        offs += moved.offs;
        squares += moved.squares;
    }
    offs = dotcu::reduce_warp<warps>(offs, dotcu::plus());
    return {0, mean, offs, dotcu::reduce_warp<warps>(squares, dotcu::plus())};
}
