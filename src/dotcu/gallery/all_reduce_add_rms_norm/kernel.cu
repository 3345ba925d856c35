// all_reduce_add_rms_norm: sum = residual + the sum of x over the ranks; out = rms_norm(sum).
//
//     x, residual, sum, out    rows of n elements; weight: n
//
// Idea: what ends a tensor-parallel layer, in one kernel. A block sends its rows of x to all other
// ranks, then takes one row after the other: the sum of what came and the residual stays in
// registers until the row's mean of squares is known. Nothing of size n goes through memory between
// the sum and the norm, and no rank waits for more than its own rows.
//
// Cost: 2 n elements read and 2 n written for a row, ranks - 1 times n sent (twice as many bytes by
// mail). Bound by the link: its latency for a few rows.
#include <dotcu/reduce.cuh>

#include "../all_reduce/sums.cuh"

// Elements of weight from `at` on, zeros beyond n.
template <int lanes, typename W>
__device__ dotcu::vector<W, lanes> scales_at(const W* weight, int at, int n, bool whole) {
    if (whole) return dotcu::load_if<lanes>(at < n, weight + at, W(0.0f));
    dotcu::vector<W, lanes> value;
#pragma unroll
    for (int k = 0; k < lanes; ++k) value[k] = at + k < n ? weight[at + k] : W(0.0f);
    return value;
}

// `letters`: 8 bytes of a row, for each of the block's threads at most.
template <typename T, typename W, int ranks, int letters, int threads>
__global__ void __launch_bounds__(threads)
    all_reduce_add_rms_norm(const T* x, unsigned char* const* boxes, int rank, const T* residual,
                            const W* weight, T* sum, T* out, long long rows, int n,
                            dotcu::wide<T> eps, long long places, bool whole) {
    using Wide = dotcu::wide<T>;
    constexpr int lanes = letter_lanes<T>,
                  count = letters < at_once<ranks> ? letters : at_once<ranks>;
    __shared__ Wide of_warp[threads / dotcu::warp_size];
    const dotcu::mail<ranks> mail(boxes, rank, places, static_cast<unsigned>(rows * n));
    const int of_row = (n + lanes - 1) / lanes, me = static_cast<int>(threadIdx.x);
    for (long long row = blockIdx.x; row < rows; row += gridDim.x)
        for (int at = me; at < of_row; at += threads)
            mail.send(row * of_row + at, pack(x + row * n, at * lanes, n, whole));

    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        uint2 own[letters], more[letters];
        dotcu::vector<W, lanes> scales[letters];
#pragma unroll
        for (int i = 0; i < letters;
             ++i) {  // all that needs no letter, before the first is awaited
            const int at = (me + i * threads) * lanes;
            own[i] = pack(x + row * n, at, n, whole);
            more[i] = pack(residual + row * n, at, n, whole);
            scales[i] = scales_at<lanes>(weight, at, n, whole);
        }
        dotcu::vector<Wide, lanes> held[letters];
        Wide squares = 0;
#pragma unroll
        for (int i = 0; i < letters; i += count)
            add_mail<T, count>(mail, row * of_row + me + i * threads, threads, (row + 1) * of_row,
                               rank, own + i, held + i);
#pragma unroll
        for (int i = 0; i < letters; ++i) {
            const int at = (me + i * threads) * lanes;
            const auto added = dotcu::widen<Wide>(__builtin_bit_cast(letter_of<T>, more[i]));
#pragma unroll
            for (int k = 0; k < lanes; ++k) held[i][k] += added[k];
            const auto rounded = dotcu::to<T>(held[i]);
            unpack(sum + row * n, at, n, whole, rounded);
            held[i] = dotcu::widen<Wide>(rounded);
#pragma unroll
            for (int k = 0; k < lanes; ++k)
                if (at + k < n) squares += held[i][k] * held[i][k];
        }
        squares = dotcu::reduce_block<threads>(squares, of_warp, dotcu::plus());
        const Wide scale = 1 / sqrt(squares / n + eps);
#pragma unroll
        for (int i = 0; i < letters; ++i) {
#pragma unroll
            for (int k = 0; k < lanes; ++k) held[i][k] *= scale * static_cast<Wide>(scales[i][k]);
            unpack(out + row * n, (me + i * threads) * lanes, n, whole, dotcu::to<T>(held[i]));
        }
        __syncthreads();  // of_warp is written again
    }
    mail.end();
}
