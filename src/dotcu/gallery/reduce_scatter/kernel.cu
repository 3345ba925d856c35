// reduce_scatter: out = this rank's part of the sum of x over the ranks of a group.
//
//     inputs    each rank's x in symmetric memory: ranks * n elements
//     out       n elements: those from rank * n on of the sum
//
// Idea: every rank reads its own part of each x and adds up: what is needed crosses the link once,
// and nothing is written to others. The ranks meet before, so that all of x is there, and after, so
// that no later kernel writes x too early.
//
// Cost: ranks * n elements read, of which (ranks - 1) * n cross the link, and n written. Bound by
// the link.
#include "../all_reduce/sums.cuh"

template <typename T, int lanes, int ranks>
__global__ void reduce_scatter(const T* const* inputs, unsigned* const* pads, int rank, T* out,
                               long long n) {
    const long long first = rank * (n / lanes);
    dotcu::meet_ranks<0>(pads, rank, ranks, n);
    add_peers<T, lanes, ranks>(inputs, first, first + n / lanes,
                               [&](long long v, const dotcu::vector<T, lanes>& sum) {
                                   dotcu::store(out + (v - first) * lanes, sum);
                               });
    dotcu::meet_ranks<1>(pads, rank, ranks, n);
}
