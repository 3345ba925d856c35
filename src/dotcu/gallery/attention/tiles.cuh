// What the kernels of attention share: numbers, conversions, and which tile a block works on.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <dotcu/pipeline.cuh>
#include <dotcu/tensor.cuh>
#include <dotcu/wgmma.cuh>

constexpr float infinity = __builtin_bit_cast(float, 0x7f800000);
constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

// Which keys a query sees.
enum Mask { all_keys = 0, causal = 1, window = 2 };

__device__ inline float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Largest scores beyond this, in powers of two, are taken off before the product with the factor,
// which is fused with a subtraction: what it is off by would be no small part of a power.
constexpr float far_off = 16384;

// Two neighbouring columns in the 32 bits of a register.
template <typename T>
__device__ unsigned pack(float first, float second);
template <>
__device__ inline unsigned pack<__half>(float first, float second) {
    const __half2 both = __floats2half2_rn(first, second);
    return reinterpret_cast<const unsigned&>(both);
}
template <>
__device__ inline unsigned pack<__nv_bfloat16>(float first, float second) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
    return reinterpret_cast<const unsigned&>(both);
}

// A block of `size` rows of packed sequences.
struct Sequence {
    int index, block, start, count;
};

// The rows of a sequence, of `all` that there are. Those behind the last one are one more.
__device__ inline Sequence sequence_of(const int* starts, int sequences, int index, int all) {
    const int start = min(starts[index], all);
    return {index, 0, start, (index + 1 < sequences ? min(starts[index + 1], all) : all) - start};
}

// Blocks are numbered through all sequences. Sequence s has those from starts[s] / size + s on: at
// least as many as its rows need, so that their number, total / size + sequences, is known without
// the lengths. A block may be behind its sequence's rows.
__device__ inline Sequence sequence_at(const int* starts, int sequences, int size, int block,
                                       int all) {
    int low = 0;
    for (int high = sequences; high - low > 1;) {
        const int middle = (low + high) / 2;
        (starts[middle] / size + middle <= block ? low : high) = middle;
    }
    const Sequence rows = sequence_of(starts, sequences, low, all);
    return {low, block - (rows.start / size + low), rows.start, rows.count};
}

// The same for sequences of `rows` each where they are not packed, else of as many together.
__device__ inline Sequence block_at(const int* starts, int sequences, int size, int block,
                                    int rows) {
    if (starts) return sequence_at(starts, sequences, size, block, rows);
    const int blocks = (rows + size - 1) / size;
    return {block / blocks, block % blocks, 0, rows};
}

// The sum, or the largest, of the four lanes that share a row of a product.
__device__ inline float row_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}
__device__ inline float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

// scores -> cap * tanh(scores / cap), as a factor of cap. tanh.approx would be off by 2^-11.
__device__ inline float tanh_of(float x) { return 1 - 2 / (1 + exp2_of(2 * log2_e * x)); }

// Copies floats, a multiple of four, from a multiple of 16 bytes; they count for `arrived`.
__device__ inline void copy_floats(float* to, const float* from, int count,
                                   dotcu::mbarrier& arrived) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(dotcu::shared_address(to)),
        "l"(from), "r"(count * 4), "r"(dotcu::shared_address(&arrived))
        : "memory");
}

// Zeroes the rows from `first` on of a tile in chunks of 64 columns: what TMA brought of the next
// sequence, which may be NaN, and a weight of 0 does not take that out. `size` threads call it.
template <typename T, int chunks, int rows>
__device__ void clear_rows(T (&tile)[chunks][rows][64], int first, int thread, int size) {
    for (int c = 0; c < chunks; ++c) {
        auto* words = reinterpret_cast<uint4*>(tile[c]);
        for (int i = first * 8 + thread; i < rows * 8; i += size) words[i] = uint4{};
    }
}

// Writes the half h of a thread's accumulators of D columns, times a factor, to its row as T. The
// four lanes of a row exchange columns, so that each stores 16 bytes; all lanes call it.
template <typename T, int D>
__device__ void store_row(T* row, int columns, bool wanted, const float (&sums)[D / 2], int h,
                          float factor) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < D / 2; i += 16) {
        unsigned w[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int at = i + 4 * c + 2 * h;
            w[c] = pack<T>(sums[at] * factor, sums[at + 1] * factor);
        }
#pragma unroll
        for (int c = 0; c < 4; c += 2) {
            const unsigned got = __shfl_xor_sync(~0u, odd ? w[c] : w[c + 1], 1);
            (odd ? w[c] : w[c + 1]) = got;
        }
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            const unsigned got = __shfl_xor_sync(~0u, high ? w[c] : w[c + 2], 2);
            (high ? w[c] : w[c + 2]) = got;
        }
        const int column = 2 * i + threadIdx.x % 4 * 8;
        if (wanted && column < columns) {
            *reinterpret_cast<uint4*>(row + column) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
}
