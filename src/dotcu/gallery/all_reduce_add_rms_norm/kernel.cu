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

// `letters`: 8 bytes of a row, for each of the block's threads at most.
template <typename T, typename W, int ranks, int letters, int threads>
__global__ void __launch_bounds__(threads)
    all_reduce_add_rms_norm(const T* x, unsigned char* const* boxes, int rank, const T* residual,
                            const W* weight, T* sum, T* out, long long rows, int n, float eps,
                            long long places, bool whole) {
    using Wide = dotcu::wide<T>;
    constexpr int lanes = letter_lanes<T>;
    __shared__ Wide of_warp[threads / dotcu::warp_size];
    const dotcu::mail<ranks> mail(boxes, rank, places);
    const int of_row = (n + lanes - 1) / lanes;
    for (long long row = blockIdx.x; row < rows; row += gridDim.x)
        for (int at = threadIdx.x; at < of_row; at += threads)
            mail.send(row * of_row + at, pack(x + row * n, at * lanes, n, whole));

    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        letter_of<T> held[letters];
        Wide squares = 0;
#pragma unroll
        for (int i = 0; i < letters; ++i) {
            const int at = threadIdx.x + i * threads;
            if (at >= of_row) break;
            const uint2 own = pack(x + row * n, at * lanes, n, whole);
            auto total = add_mail<T>(mail, row * of_row + at, rank, own);
            const uint2 more = pack(residual + row * n, at * lanes, n, whole);
            const auto added = dotcu::widen<Wide>(__builtin_bit_cast(letter_of<T>, more));
#pragma unroll
            for (int k = 0; k < lanes; ++k) total[k] += added[k];
            held[i] = dotcu::to<T>(total);
            unpack(sum + row * n, at * lanes, n, whole, held[i]);
            const auto rounded = dotcu::widen<Wide>(held[i]);
#pragma unroll
            for (int k = 0; k < lanes; ++k) squares += rounded[k] * rounded[k];
        }
        squares = dotcu::reduce_block<threads>(squares, of_warp, dotcu::plus());
        const Wide scale = 1 / sqrt(squares / n + static_cast<Wide>(eps));
#pragma unroll
        for (int i = 0; i < letters; ++i) {
            const int at = threadIdx.x + i * threads;
            if (at >= of_row) break;
            auto value = dotcu::widen<Wide>(held[i]);
#pragma unroll
            for (int k = 0; k < lanes; ++k)
                if (at * lanes + k < n)
                    value[k] *= scale * static_cast<Wide>(weight[at * lanes + k]);
            unpack(out + row * n, at * lanes, n, whole, dotcu::to<T>(value));
        }
        __syncthreads();  // of_warp is written again
    }
    mail.end();
}
