// all_reduce: sums over GPUs, by each reading the others' memory. For benchmarks/several_gpus.py.
//
// One shot: every rank reads all of every rank, and adds up. n elements arrive over the link from
// each peer; the ranks meet twice. For small tensors, where only latency counts.
//
// Two shots: every rank adds up its own part, and writes the sum to all. 2 n / ranks elements cross
// the link for each peer. For large tensors. The result is in place.
//
// Blocks of one number meet on all ranks and read and write the same places there, so no block
// waits for another one of its own rank. Sums are in float32, in the order of the ranks: the same
// on each. n is a multiple of `lanes`.

#include <dotcu/grid.cuh>
#include <dotcu/peers.cuh>
#include <dotcu/vector.cuh>

template <typename T, int lanes, int ranks>
__device__ dotcu::vector<T, lanes> sum_of(const T* const* inputs, long long at) {
    dotcu::vector<T, lanes> x[ranks];
#pragma unroll
    for (int r = 0; r < ranks; ++r) x[r] = dotcu::load<lanes>(inputs[r] + at);
    auto sum = dotcu::to_float(x[0]);
#pragma unroll
    for (int r = 1; r < ranks; ++r) {
        const auto next = dotcu::to_float(x[r]);
#pragma unroll
        for (int k = 0; k < lanes; ++k) sum[k] += next[k];
    }
    return dotcu::to<T>(sum);
}

template <typename T, int lanes, int ranks>
__global__ void one_shot(const T* const* inputs, unsigned* const* pads, int rank, T* out,
                         long long n) {
    dotcu::meet_ranks(pads, rank, ranks);
    for (long long v = dotcu::thread_of_grid(); v < n / lanes; v += dotcu::threads_of_grid())
        dotcu::store(out + v * lanes, sum_of<T, lanes, ranks>(inputs, v * lanes));
    dotcu::meet_ranks(pads, rank, ranks);
}

template <typename T, int lanes, int ranks>
__global__ void two_shots(T* const* tensors, unsigned* const* pads, int rank, long long n) {
    const long long part = (n / lanes + ranks - 1) / ranks, first = rank * part;
    const long long last = first + part < n / lanes ? first + part : n / lanes;
    dotcu::meet_ranks(pads, rank, ranks);
    for (long long v = first + dotcu::thread_of_grid(); v < last; v += dotcu::threads_of_grid()) {
        const auto sum = sum_of<T, lanes, ranks>(tensors, v * lanes);
#pragma unroll
        for (int r = 0; r < ranks; ++r) dotcu::store(tensors[r] + v * lanes, sum);
    }
    dotcu::meet_ranks(pads, rank, ranks);
}
