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

template <int lanes>
constexpr int threads_of = lanes <= dotcu::warp_size ? 128 : lanes;  // short rows share a block

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

    // Adds a thread's vectors of a row that `group` lanes share. The pivot is the mean of the
    // first.
    template <int group, int stride, bool exact, typename T, int width, int vectors>
    __device__ void include_part(dotcu::vector<T, width> (&part)[vectors], int at, int end) {
        Sum sum = 0, seen = 0, more = 0;
        dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int) {
            more += width;
            if (v > 0) return;  // the first vectors suffice for a pivot
            const auto value = dotcu::widen<Sum>(part[v]);
            for (int k = 0; k < width; ++k) sum += value[k];
            seen = width;
        });
        more = exact ? group * vectors * width : dotcu::reduce_warp<group>(more, dotcu::plus());
        seen = exact ? group * width : dotcu::reduce_warp<group>(seen, dotcu::plus());
        const Sum mean = dotcu::reduce_warp<group>(sum, dotcu::plus()) / max(seen, Sum(1));
        if (count == 0) pivot = mean;
        count += more;
        dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int) {
            include(dotcu::widen<Sum>(part[v]));
            if constexpr (vectors > 2) dotcu::repack(part[v]);
        });
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

// A vector or an edge, normalized: `rest` is the mean minus the pivot.
template <typename Sum, typename T, typename W, int n>
__device__ dotcu::vector<T, n> normalized(const dotcu::vector<T, n>& x, Sum pivot, Sum rest, Sum r,
                                          const dotcu::vector<W, n>& scale,
                                          const dotcu::vector<W, n>& shift) {
    const auto by = dotcu::widen<Sum>(scale), plus = dotcu::widen<Sum>(shift);
    auto value = dotcu::widen<Sum>(x);
    for (int k = 0; k < n; ++k) value[k] = ((value[k] - pivot) * r - rest * r) * by[k] + plus[k];
    return dotcu::to<T>(value);
}
