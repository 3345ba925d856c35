// ring.cuh: the steps of k that are on their way, of weights and of x, in shared memory.
#pragma once

#include <dotcu/async.cuh>

#include "weights.cuh"

using Piece = dotcu::vector<unsigned, 4>;  // 16 bytes

// Starts to copy a piece of a row that ends at `end`: element by element if it is not `whole`.
template <bool whole, typename P, typename E>
__device__ void copy(P* to, const E* row, int at, int end) {
    if constexpr (whole) {
        dotcu::copy_later(to, reinterpret_cast<const unsigned*>(row + at), at < end ? P::size : 0);
    } else {
        constexpr int n = sizeof(P) / sizeof(E);
        E part[n];
#pragma unroll
        for (int i = 0; i < n; ++i) part[i] = at + i < end ? row[at + i] : static_cast<E>(0);
        memcpy(to, part, sizeof(part));
    }
}

// A barrier of the `threads` that work on one part of k.
template <int threads>
__device__ void wait_for_part(int part) {
    if constexpr (threads == 32)
        __syncwarp();
    else
        asm volatile("bar.sync %0, %1;" ::"r"(part + 1), "n"(threads) : "memory");
}

// A warp's weights and its part's x: `depth` steps of k in each of `stages` slots.
template <typename T, typename W, int bytes, bool whole, int rt, int mt, int wn, int wk, int depth,
          int stages>
struct Ring {
    static constexpr int elements = 8 * bytes / bits_of<W>, span = 4 * elements;
    static constexpr int pieces = elements / 8, per_w = bits_of<W> < 8 ? 2 : 1, threads = 32 * wn;
    using Chunk = dotcu::vector<unsigned, bytes / 4>;
    using Weights = Chunk[depth][2 * rt][32];
    using Columns = Piece[depth][mt][pieces][32];

    Weights* weights;  // by lane / 4 and lane % 4: each lane reads what it has copied
    Columns* columns;  // in the same order, for all warps of the part

    // Rows of x beyond the last one are zeros, which no copy touches.
    __device__ Ring(Piece* memory, int part, int m) {
        Columns* all = reinterpret_cast<Columns*>(memory);
        columns = all + part * stages;
        weights = reinterpret_cast<Weights*>(all + wk * stages) + threadIdx.x / 32 * stages;
        for (int i = threadIdx.x % threads; i < stages * depth * pieces * 32; i += threads) {
            const int l = i % 32, p = i / 32 % pieces, d = i / 32 / pieces % depth;
            const int slot = i / 32 / pieces / depth;
            if ((mt - 1) * 8 + l / 4 >= m) columns[slot][d][mt - 1][p][l] = Piece{};
        }
    }

    // Starts to copy the steps at column `from`.
    __device__ void fetch(int slot, const W* const (&row)[2 * rt], const T* x, int m, int k,
                          int from) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int d = 0; d < depth; ++d) {
            const int base = from + d * span, at = base + lane % 4 * elements;
#pragma unroll
            for (int r = 0; r < 2 * rt; ++r) {
                copy<whole>(&weights[slot][d][r][lane], row[r], at / per_w, k / per_w);
            }
#pragma unroll
            for (int i = threadIdx.x % threads; i < mt * pieces * 32; i += threads) {
                const int l = i % 32, p = i / 32 % pieces, c = i / 32 / pieces;
                if (c * 8 + l / 4 >= m) continue;
                const T* y = x + static_cast<long long>(c * 8 + l / 4) * k;
                copy<whole>(&columns[slot][d][c][p][l], y, base + l % 4 * elements + p * 8, k);
            }
        }
    }

    // A lane's weights of a step, as pairs of T.
    __device__ void pairs(int slot, int d, unsigned (&to)[2 * rt][elements / 2]) {
#pragma unroll
        for (int r = 0; r < 2 * rt; ++r) {
            const Chunk chunk = weights[slot][d][r][threadIdx.x % 32];
#pragma unroll
            for (int i = 0; i < bytes / 4; ++i) {
                unsigned some[pairs_of_word<W>];
                to_pairs<T, W>(chunk[i], some);
                memcpy(&to[r][i * pairs_of_word<W>], some, sizeof(some));
            }
        }
    }

    // And what they are multiplied by: eight rows of x.
    __device__ void pairs_of_x(int slot, int d, int c, unsigned (&to)[elements / 2]) {
#pragma unroll
        for (int p = 0; p < pieces; ++p) {
            memcpy(to + 4 * p, &columns[slot][d][c][p][threadIdx.x % 32], 16);
        }
        arrange<W>(to);
    }
};
