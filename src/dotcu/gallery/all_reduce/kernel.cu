// all_reduce: out = the sum of x over the ranks of a group, on every rank.
//
//     all_reduce    x, out: n elements of any memory, at most 8 bytes for each place of a workspace
//     one_shot      inputs: each rank's x in symmetric memory; out: of n elements
//     by_copies     x, out: n elements of any memory; boxes: a workspace of `room` vectors
//     two_shots     tensors: the same, and the sum takes the place of x
//
// Idea: a small sum costs latency. all_reduce sends x to all others and adds up what comes, one
// trip over the link and no meeting: each word says which call it is of. A large sum costs what
// crosses the link. one_shot reads all of each other's x: n (ranks - 1) elements come in. two_shots
// adds up one part on each rank and writes it to all: 2 n (ranks - 1) / ranks, as many for two
// ranks and fewer for more. Both meet before they read, and before another kernel may write x.
// by_copies is one_shot for x in other memory: a block copies its elements to where its peers reach
// them, as many at a time as have room there.
// Blocks of one number work on the same elements on all ranks, so no block waits for another one of
// its own.
//
// Cost: n elements read and written, ranks - 1 times n sent (twice as many bytes by mail); n
// (ranks - 1) additions. Bound by the link's latency up to some 100 KB, then by its bandwidth.
#include "sums.cuh"

template <typename T, int ranks>
__global__ void all_reduce(const T* x, unsigned char* const* boxes, int rank, T* out, long long n,
                           long long places, bool whole) {
    constexpr int lanes = letter_lanes<T>, count = at_once<ranks>;
    const dotcu::mail<ranks> mail(boxes, rank, places, static_cast<unsigned>(n));
    const long long letters = (n + lanes - 1) / lanes, stride = dotcu::threads_of_grid();
    const long long first = dotcu::thread_of_grid();
    for (long long at = first; at < letters; at += stride)
        mail.send(at, pack(x, at * lanes, n, whole));
    for (long long at = first; at < letters; at += count * stride) {
        uint2 own[count];
        dotcu::vector<dotcu::wide<T>, lanes> sums[count];
#pragma unroll
        for (int i = 0; i < count; ++i) own[i] = pack(x, (at + i * stride) * lanes, n, whole);
        add_mail<T, count>(mail, at, stride, letters, rank, own, sums);
#pragma unroll
        for (int i = 0; i < count; ++i)
            unpack(out, (at + i * stride) * lanes, n, whole, dotcu::to<T>(sums[i]));
    }
    mail.end();
}

template <typename T, int lanes, int ranks>
__global__ void one_shot(const T* const* inputs, unsigned* const* pads, int rank, T* out,
                         long long n) {
    dotcu::meet_ranks<0>(pads, rank, ranks, n);
    add_peers<T, lanes, ranks>(inputs, 0, n / lanes,
                               [&](long long v, const dotcu::vector<T, lanes>& sum) {
                                   dotcu::store(out + v * lanes, sum);
                               });
    dotcu::meet_ranks<1>(pads, rank, ranks, n);
}

template <typename T, int lanes, int ranks>
__global__ void by_copies(const T* x, unsigned char* const* boxes, unsigned* const* pads, int rank,
                          T* out, long long n, long long room) {
    const long long vectors = n / lanes, stride = dotcu::threads_of_grid();
    T* own = reinterpret_cast<T*>(boxes[rank]);
    const T* copies[ranks];
#pragma unroll
    for (int r = 0; r < ranks; ++r) copies[r] = reinterpret_cast<const T*>(boxes[r]);
    for (long long first = 0; first < vectors; first += room) {
        const long long count = first + room < vectors ? room : vectors - first;
        for (long long v = dotcu::thread_of_grid(); v < count; v += stride)
            dotcu::store(own + v * lanes, dotcu::load<lanes>(x + (first + v) * lanes));
        dotcu::meet_ranks<0>(pads, rank, ranks, n);
        add_peers<T, lanes, ranks>(copies, 0, count,
                                   [&](long long v, const dotcu::vector<T, lanes>& sum) {
                                       dotcu::store(out + (first + v) * lanes, sum);
                                   });
        dotcu::meet_ranks<1>(pads, rank, ranks, n);
    }
}

template <typename T, int lanes, int ranks>
__global__ void two_shots(T* const* tensors, unsigned* const* pads, int rank, long long n) {
    const long long part = (n / lanes + ranks - 1) / ranks, first = rank * part;
    const long long last = first + part < n / lanes ? first + part : n / lanes;
    dotcu::meet_ranks<0>(pads, rank, ranks, n);
    add_peers<T, lanes, ranks>(tensors, first, last,
                               [&](long long v, const dotcu::vector<T, lanes>& sum) {
#pragma unroll
                                   for (int r = 0; r < ranks; ++r)
                                       dotcu::store(tensors[r] + v * lanes, sum);
                               });
    dotcu::meet_ranks<1>(pads, rank, ranks, n);
}
