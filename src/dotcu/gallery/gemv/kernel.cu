// gemv: out[m][n] = scale[n] * (sum over k of x[m][k] * weight[n][k]) + bias[n], for few rows m.
//
//     x, out: (m, k) and (m, n) of T; weight: n rows of k elements of W; bias: (n) of T or null
//     scale: null, or with `pitch` elements from a row to the next: scale[n * pitch]; `grouped`:
//     one for each 2^log2_group elements, scale[n * pitch + (k >> log2_group)]
//
// Idea: the weights are a stream that is read once. Tensor cores take them as the 16 rows of A, and
// x as the 8 columns of B. Any order of k does, so a lane copies 16 adjacent bytes of a row, and
// four lanes' elements are the k of two or more mma: nothing is shuffled, and a lane reads only
// what it has copied. Copies of `stages` - 1 steps are in flight, without registers. A warp has
// 16 * rt rows and 8 * mt columns; `wn` warps have different rows and share x, `wk` groups of them
// have different parts of k, and so have the blocks of a cluster. Their sums meet in shared memory,
// in a fixed order.
//
// Cost: the weights are read once, 2 m FLOPs for each: bound by memory.
// Source: PTX ISA, "mma.m16n8k16", "cp.async".
#include "ring.cuh"

template <typename T, typename W, typename S, int bytes, bool whole, bool grouped, int rt, int mt,
          int wn, int wk, int depth, int stages>
__global__ void __launch_bounds__(32 * wn * wk)
    gemv(const T* __restrict__ x, const W* __restrict__ weight, const S* __restrict__ scale,
         const T* __restrict__ bias, T* __restrict__ out, int m, int n, int k, int pitch,
         int log2_group) {
    using Steps = Ring<T, W, bytes, whole, rt, mt, wn, wk, depth, stages>;
    constexpr int elements = Steps::elements, rows = 16 * rt * wn, step = Steps::span * depth;
    extern __shared__ Piece memory[];
    const int lane = threadIdx.x % 32, part = threadIdx.x / 32 / wn;
    const int blocks = dotcu::cluster_blocks(), rank = dotcu::cluster_rank();
    const int first = blockIdx.x / blocks * rows, mine = threadIdx.x / 32 % wn * 16 * rt;
    const W* row[2 * rt];
    const S* scales[2 * rt];
#pragma unroll
    for (int r = 0; r < 2 * rt; ++r) {  // beyond the last one: that once more
        const long long which = min(first + mine + r * 8 + lane / 4, n - 1);
        row[r] = weight + which * (k / Steps::per_w), scales[r] = scale + which * pitch;
    }
    Steps ring(memory, part, m);
    const int stride = step * wk * blocks, begin = (rank * wk + part) * step;
#pragma unroll
    for (int s = 0; s < stages - 1; ++s) {
        if (begin + s * stride < k) ring.fetch(s, row, x, m, k, begin + s * stride);
        dotcu::commit_copies();
    }

    float sum[rt][mt][4] = {};
    int slot = 0;
    for (int from = begin; from < k; from += stride) {
        float by[depth][2 * rt];
#pragma unroll
        for (int i = 0; grouped && i < depth * 2 * rt; ++i) {
            const int at = min(from + i / (2 * rt) * Steps::span, k - 1);
            by[i / (2 * rt)][i % (2 * rt)] =
                static_cast<float>(scales[i % (2 * rt)][at >> log2_group]);
        }
        dotcu::wait_for_copies<stages - 2>();
        wait_for_part<32 * wn>(part);
        const int next = from + (stages - 1) * stride;
        if (next < k) ring.fetch((slot + stages - 1) % stages, row, x, m, k, next);
        dotcu::commit_copies();
#pragma unroll
        for (int d = 0; d < depth; ++d) {
            unsigned pairs[2 * rt][elements / 2], y[elements / 2];
            ring.pairs(slot, d, pairs);
#pragma unroll
            for (int t = 0; t < rt * mt; ++t) {
                const int c = t / rt, r = t % rt;
                if (r == 0) ring.pairs_of_x(slot, d, c, y);
                float group[4] = {};
#pragma unroll
                for (int i = 0; i < elements / 2; i += 2) {
                    multiply<T>(grouped ? group : sum[r][c], &pairs[2 * r][i], &pairs[2 * r + 1][i],
                                y + i);
                }
                for (int i = 0; grouped && i < 4; ++i) {
                    sum[r][c][i] += by[d][2 * r + i / 2] * group[i];
                }
            }
        }
        slot = (slot + 1) % stages;
    }
    dotcu::wait_for_copies<0>();
    __syncthreads();
    const S* of_rows = grouped || !scale ? nullptr : scale + static_cast<long long>(first) * pitch;
    finish<wk, rows>(sum, reinterpret_cast<float*>(memory), part, mine, of_rows, pitch,
                     bias ? bias + first : nullptr, out + first, m, min(n - first, rows), n);
}
