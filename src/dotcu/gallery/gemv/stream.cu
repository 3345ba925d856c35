// gemv on Hopper, for 8 rows of x at most: out = x @ weight.T, as kernel.cu has it.
//
// Idea: the last warp copies 128 bytes of each of the block's rows of weights by TMA, and the x
// that belongs to them, some stages ahead; the others multiply. The hardware computes the
// addresses, and the warps have registers and issue slots for their weights alone. In a stage, a
// row's 16-byte pieces lie in the swizzled order that TMA writes: ldmatrix gives a lane a word of a
// piece, and its x are as many elements as the word has weights. Scales of groups come the same
// way, 32 bytes of each row in a slot, which lasts for some stages.
//
// `unit`: pieces that have one scale; 0 where a row or all rows have one. A warp has 16 * rt rows.
// The blocks of a cluster have parts of k; what is beyond a tensor is zeros.
//
// Cost: the weights are read once, 2 m FLOPs for each: bound by memory.
// Source: PTX ISA, "mma.m16n8k16", "ldmatrix", "cp.async.bulk.tensor".
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <dotcu/cluster.cuh>
#include <dotcu/mma.cuh>
#include <dotcu/pipeline.cuh>

#include "weights.cuh"

constexpr int ROW = 128, PIECES = 8;  // bytes of a row in a stage, and pieces of 16 of them
constexpr int BOX = 8 * ROW;          // bytes of 64 columns of x
constexpr int SLOT = 32;              // bytes of a row's scales in a slot

// Where in its box an element of one row of x is.
__device__ inline int of_box(int row, int element) {
    return row * ROW + (element / 8 ^ row) * 16 + element % 8 * 2;
}

template <typename T, typename W, typename S, int unit, int rt, int warps, int stages>
__global__ void __launch_bounds__(32 * (warps + 1))
    gemv_stream(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap weights,
                const __grid_constant__ CUtensorMap scales, const S* __restrict__ scale,
                const T* __restrict__ bias, T* __restrict__ out, int m, int n, int k, int pitch,
                int log2_group) {
    constexpr bool grouped = unit > 0;
    constexpr int elements = 128 / bits_of<W>, span = PIECES * elements;
    constexpr int per_w = bits_of<W> < 8 ? 2 : 1, words = pairs_of_word<W>;
    constexpr int of_unit = grouped ? unit : PIECES, units = PIECES / of_unit;
    constexpr int rows = 16 * rt * warps, W_BYTES = rows * ROW, X_BYTES = span / 64 * BOX;
    constexpr int in_slot = SLOT / sizeof(S), S_BYTES = rows * SLOT;
    constexpr int slots = 1 + (stages - 1 + in_slot / units - 1) / (in_slot / units);
    using Scales = dotcu::vector<S, units>;
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ dotcu::pipeline<stages> pipe;
    if (threadIdx.x == 0) pipe.init(1, warps);
    if (threadIdx.x == 32 * warps) dotcu::tma_prefetch(weights), dotcu::tma_prefetch(x);
    __syncthreads();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int blocks = dotcu::cluster_blocks(), rank = dotcu::cluster_rank();
    const int first = blockIdx.x / blocks * rows, all = (k + span - 1) / span;
    const int begin = all * rank / blocks, end = all * (rank + 1) / blocks;
    const int mine = warp < warps ? warp * 16 * rt : -1;
    unsigned char* slot = memory + stages * (W_BYTES + X_BYTES);
    unsigned char* const last = slot + (slots - 1) * S_BYTES;
    auto group_of = [&](int step) { return step * span >> log2_group; };
    auto next_slot = [&](int step) {  // before a step: whether its scales are in another slot
        if (!grouped || step == begin) return grouped;
        if ((group_of(step) ^ group_of(step - 1)) < in_slot) return false;
        slot = slot == last ? last - (slots - 1) * S_BYTES : slot + S_BYTES;
        return true;
    };
    dotcu::ring<stages> at;
    float sum[rt][1][4] = {};

    if (warp == warps) {
        for (int step = begin; lane == 0 && step < end; ++step, at.next()) {
            unsigned char* stage = memory + at.stage * (W_BYTES + X_BYTES);
            dotcu::mbarrier& full = pipe.acquire(at);
            const bool more = next_slot(step);
            full.arrive_expect(W_BYTES + X_BYTES + (more ? S_BYTES : 0));
            dotcu::tma_load(stage, weights, full, first, step * (span / per_w));
#pragma unroll
            for (int i = 0; i < span / 64; ++i)
                dotcu::tma_load(stage + W_BYTES + i * BOX, x, full, 0, step * span + 64 * i);
            if (more) dotcu::tma_load(slot, scales, full, first, group_of(step) & -in_slot);
        }
        __syncwarp();
    } else {
        for (int step = begin; step < end; ++step, at.next()) {
            const unsigned char* stage = memory + at.stage * (W_BYTES + X_BYTES);
            const unsigned char* row = stage + (mine + lane % 16) * ROW;
            Scales by[2 * rt];
            float group[rt][4];
            next_slot(step);
            pipe.wait(at);
#pragma unroll
            for (int r = 0; grouped && r < 2 * rt; ++r)
                by[r] = *reinterpret_cast<const Scales*>(slot + (mine + r * 8 + lane / 4) * SLOT +
                                                         group_of(step) % in_slot * sizeof(S));
#pragma unroll
            for (int p = 0; p < PIECES; p += 2) {  // two pieces: at least one k of 16
                unsigned y[2 * words];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int e = (p + i) * elements + lane % 4 * 2 * words;
                    const auto x_part = *reinterpret_cast<const dotcu::vector<unsigned, words>*>(
                        stage + W_BYTES + e / 64 * BOX + of_box(lane / 4, e % 64));
                    memcpy(y + i * words, &x_part, sizeof(x_part));
                }
                arrange<W>(y);
#pragma unroll
                for (int r = 0; r < rt; ++r) {
                    unsigned word[4], upper[2 * words], lower[2 * words];
                    const int piece = p + lane / 16 ^ lane % 8;
                    dotcu::load_matrices(word, row + r * 16 * ROW + piece * 16);
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        unsigned some[words];
                        to_pairs<T, W>(word[i], some);
                        memcpy((i % 2 ? lower : upper) + i / 2 * words, some, sizeof(some));
                    }
                    float (&to)[4] = grouped ? group[r] : sum[r][0];
#pragma unroll
                    for (int i = 0; i < 2 * words; i += 2) {
                        const int piece = p + i / words, next = p + (i + 2) / words;
                        if (grouped && piece % of_unit == 0 && i % words == 0)
                            to[0] = to[1] = to[2] = to[3] = 0;
                        multiply<T>(to, &upper[i], &lower[i], y + i);
                        const bool closes = grouped && (i + 2) % words == 0 && next % of_unit == 0;
#pragma unroll
                        for (int j = 0; closes && j < 4; ++j)
                            sum[r][0][j] +=
                                static_cast<float>(by[2 * r + j / 2][piece / of_unit]) * to[j];
                    }
                }
            }
            __syncwarp();
            if (lane == 0) pipe.release(at);
        }
    }
    __syncthreads();
    const S* of_rows = grouped || !scale ? nullptr : scale + static_cast<long long>(first) * pitch;
    finish<1, rows>(sum, reinterpret_cast<float*>(memory), 0, mine, of_rows, pitch,
                    bias ? bias + first : nullptr, out + first, m, min(n - first, rows), n);
}
