// weights.cuh: weights of 16, 8 or 4 bits as pairs of T, the operands of mma.sync.
//
//     unsigned pairs[pairs_of_word<W>];
//     to_pairs<T, W>(word, pairs);        // four bytes of weights
//     arrange<W>(pairs_of_x);             // pairs of x in the same order
//     multiply<T>(sum, low, high, x);     // sum += A * B, A 16 x 16, B 16 x 8
//
// All of them are exact in float16 and in bfloat16, so that products are exact too. Integers become
// floats by the bits of a large number that they are added to (1024 in float16, 128 in bfloat16).
// The eight weights of 4 bits in a word leave it as the pairs 0 and 4, 1 and 5, 2 and 6, 3 and 7,
// the four of int8 as 0 and 2, 1 and 3: masks alone take them out.
// Source: PTX ISA, "mma.m16n8k16"; Kim et al., "Who Says Elephants Can't Run", 2022.
#pragma once

#include <dotcu/tally.cuh>

enum e4m3 : unsigned char {};
enum int8 : signed char {};
enum int4_pair : unsigned char {};  // element 2i in the lower four bits, 2i + 1 in the upper

template <typename W>
constexpr int bits_of = 8 * sizeof(W);
template <>
inline constexpr int bits_of<int4_pair> = 4;

template <typename W>
constexpr bool is_e4m3 = false;
template <>
inline constexpr bool is_e4m3<e4m3> = true;

template <typename W>
constexpr int pairs_of_word = 16 / bits_of<W>;

template <typename T>
constexpr bool is_bfloat16 = dotcu::detail::is_bfloat16<T>;

// Both halves of a word as T. Exact where a value of float16 is one of T, too.
template <typename T>
__device__ unsigned from_half(unsigned pair) {
    if constexpr (is_bfloat16<T>) {
        asm("{ .reg .b16 l, h; .reg .f32 low, high;\n"
            "mov.b32 {l, h}, %0;\n"
            "cvt.f32.f16 low, l;\n"
            "cvt.f32.f16 high, h;\n"
            "cvt.rn.bf16x2.f32 %0, high, low; }"
            : "+r"(pair));
    }
    return pair;
}

// a * b + c, of pairs of T.
template <typename T>
__device__ unsigned fused(unsigned a, unsigned b, unsigned c) {
    if constexpr (is_bfloat16<T>) {
        asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(a) : "r"(b), "r"(c));
    } else {
        asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(a) : "r"(b), "r"(c));
    }
    return a;
}

// Bytes 0 and 1 of a word of e4m3, or 2 and 3, as float16; NaN stays NaN.
template <int which>
__device__ unsigned half_of_e4m3(unsigned word) {
    unsigned pair;
#if __CUDA_ARCH__ >= 890
    const unsigned short both = word >> 16 * which;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(both));
#else
    const unsigned bytes = __byte_perm(word, 0, which ? 0x3424 : 0x1404);
    const unsigned size = bytes & 0x7f007f00, nan = (size + 0x01000100) & 0x80008000;
    pair = fused<void>((bytes & 0x80008000) | size >> 1 | (nan - (nan >> 5)), 0x5c005c00, 0);
#endif
    return pair;
}

template <typename T, typename W, int n>
__device__ void to_pairs(unsigned word, unsigned (&pairs)[n]) {
    if constexpr (bits_of<W> == 16) {
        pairs[0] = word;
    } else if constexpr (bits_of<W> == 4) {
        constexpr unsigned one = is_bfloat16<T> ? 0x3f803f80 : 0x3c003c00;
        constexpr unsigned large = is_bfloat16<T> ? 0x43004300 : 0x64006400;
#pragma unroll
        for (int j = 0; j < 4; ++j) {  // large + q - (large + 8)
            unsigned sum;              // (word >> 4 * j & 0x000f000f) | large, in one instruction
            asm("lop3.b32 %0, %1, %2, %3, 0xea;"
                : "=r"(sum)
                : "r"(word >> 4 * j), "r"(0x000f000f), "r"(large));
            pairs[j] = fused<T>(sum, one, (large + 0x00080008) ^ 0x80008000);
        }
    } else if constexpr (is_e4m3<W>) {
        pairs[0] = from_half<T>(half_of_e4m3<0>(word));
        pairs[1] = from_half<T>(half_of_e4m3<1>(word));
    } else {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            if constexpr (is_bfloat16<T>) {  // 128 + seven bits - (128, or 256 if it is negative)
                unsigned low, sign;          // (word & mask) | 128
                asm("lop3.b32 %0, %1, %2, %3, 0xea;"
                    : "=r"(low)
                    : "r"(word >> 8 * j), "r"(0x007f007f), "r"(0x43004300));
                asm("lop3.b32 %0, %1, %2, %3, 0xea;"
                    : "=r"(sign)
                    : "r"(word >> 8 * j), "r"(0x00800080), "r"(0x43004300));
                pairs[j] = fused<T>(sign, 0xbf80bf80, low);
            } else {  // 1024 + 128 + value - (1024 + 128)
                const unsigned bits =
                    __byte_perm(word ^ 0x80808080, 0x64646464, j ? 0x4341 : 0x4240);
                pairs[j] = fused<T>(bits, 0x3c003c00, 0xe480e480);
            }
        }
    }
}

// Pairs of x, in the order of those of the weights.
template <typename W, int n>
__device__ void arrange(unsigned (&x)[n]) {
    if constexpr (bits_of<W> == 4) {
#pragma unroll
        for (int k = 0; k < n; k += 4) {
            const unsigned a = x[k], b = x[k + 1], c = x[k + 2], d = x[k + 3];
            x[k] = __byte_perm(a, c, 0x5410), x[k + 1] = __byte_perm(a, c, 0x7632);
            x[k + 2] = __byte_perm(b, d, 0x5410), x[k + 3] = __byte_perm(b, d, 0x7632);
        }
    } else if constexpr (bits_of<W> == 8 && !is_e4m3<W>) {
#pragma unroll
        for (int k = 0; k < n; k += 2) {
            const unsigned a = x[k], b = x[k + 1];
            x[k] = __byte_perm(a, b, 0x5410), x[k + 1] = __byte_perm(a, b, 0x7632);
        }
    }
}

// sum += A * B. A: rows lane / 4 (`upper`) and 8 more (`lower`), B: column lane / 4; of both, four
// elements of each lane, in any order that is the same in both.
template <typename T>
__device__ void multiply(float (&sum)[4], const unsigned* upper, const unsigned* lower,
                         const unsigned* x) {
    if constexpr (is_bfloat16<T>) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(upper[0]), "r"(lower[0]), "r"(upper[1]), "r"(lower[1]), "r"(x[0]), "r"(x[1]));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(upper[0]), "r"(lower[0]), "r"(upper[1]), "r"(lower[1]), "r"(x[0]), "r"(x[1]));
    }
}

// Adds up the sums of all parts of k, those of the cluster's blocks too, in a fixed order; then out
// = sum * scale + bias, `count` columns of it. `mine`: the first row of the warp's weights.
template <int wk, int rows, int rt, int mt, typename T, typename S>
__device__ void finish(const float (&sum)[rt][mt][4], float* sums, int part, int mine,
                       const S* scale, int pitch, const T* bias, T* out, int m, int count, int n) {
    constexpr int line = rows + 4, size = 8 * mt * line;  // no bank conflicts
    const int lane = threadIdx.x % 32;
    const int blocks = dotcu::cluster_blocks(), rank = dotcu::cluster_rank();
#pragma unroll
    for (int i = 0; mine >= 0 && i < rt * mt * 4; ++i) {
        const int r = i / 4 / mt, b = i / 4 % mt, c = b * 8 + lane % 4 * 2 + i % 2;
        const int which = mine + r * 16 + i % 4 / 2 * 8 + lane / 4;
        sums[part * size + c * line + which] = sum[r][b][i % 4];
    }
    __syncthreads();
    if (blocks > 1) dotcu::cluster_sync();
    constexpr int quads = rows / 4;
    for (int i = rank * blockDim.x + threadIdx.x; i < m * quads; i += blocks * blockDim.x) {
        const int c = i / quads, r = i % quads * 4;
        dotcu::vector<float, 4> total{};
#pragma unroll 4
        for (int b = 0; b < blocks; ++b) {
            const float* from = dotcu::shared_of(sums, b) + c * line + r;
            for (int p = 0; p < wk; ++p) {
                const auto part =
                    *reinterpret_cast<const dotcu::vector<float, 4>*>(from + p * size);
                for (int j = 0; j < 4; ++j) total[j] += part[j];
            }
        }
        for (int j = 0; j < 4 && r + j < count; ++j) {
            if (scale) total[j] *= static_cast<float>(scale[1ll * (r + j) * pitch]);
            if (bias) total[j] += static_cast<float>(bias[r + j]);
            out[1ll * c * n + r + j] = static_cast<T>(total[j]);
        }
    }
    if (blocks > 1) dotcu::cluster_sync();  // others have read this block's sums
}
