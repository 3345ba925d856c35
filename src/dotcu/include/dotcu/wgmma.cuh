// dotcu/wgmma.cuh: matrix products of a warpgroup on the tensor cores of sm_90a.
//
//     float d[N / 2];                                        // 64 x N sums, shared by 128 threads
//     const auto a = dotcu::k_major(&a_tile[64 * group]), b = dotcu::k_major(b_tile);
//     dotcu::wgmma_fence(d);
//     for (int k = 0; k < K; k += 16)                        // 32 bytes of each row
//         dotcu::wgmma<__nv_bfloat16>(d, a + 2 * k, b + 2 * k, k > 0);
//     dotcu::wgmma_commit();
//     dotcu::wgmma_wait<0>(d);                               // now d may be read
//
// d = a @ b.T, of 64 x k and N x k elements, added to d or not; k is 32 bytes. N: 8 to 256, in
// steps of 8. T: __half, __nv_bfloat16, float (as tf32), __nv_fp8_e4m3, __nv_fp8_e5m2. Thread t of
// the warpgroup holds, in d[i], the element of row t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8 and
// column i / 4 * 8 + t % 4 * 2 + i % 2.
//
// You must guarantee: all threads of four warps, the first a multiple of four, call; a and b are
// complete, visible to the async proxy (what TMA brings is; after ordinary stores: tma_fence() and
// a barrier) and begin with their swizzle's pattern; neither they nor d are touched between the
// fence and the wait. The simulator checks all of this. Source: PTX ISA, wgmma.mma_async; matrix
// descriptor.
#pragma once

#include <dotcu/tma.cuh>

struct __half;
struct __nv_bfloat16;
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;

namespace dotcu {

// A matrix in shared memory; `+` moves its start.
struct wgmma_operand {
    unsigned long long bits;
    __device__ wgmma_operand operator+(int bytes) const { return {bits + (bytes >> 4)}; }
};

// An address has the rank of its block in the cluster in the bits above 23, a descriptor has not.
template <int swizzle>
__device__ wgmma_operand operand_of(const void* tile, int next) {
    static_assert(swizzle == 128 || swizzle == 64 || swizzle == 32, "the bytes of a row of a tile");
    constexpr unsigned long long kind = swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3;
    return {kind << 62 | (8ull * swizzle >> 4) << 32 |
            static_cast<unsigned long long>(next >> 4) << 16 |
            (shared_address(tile) & 0x3ffff) >> 4};
}

// Rows of `swizzle` bytes along k, one for each of M or N, as TMA with that swizzle leaves them.
// The next 32 bytes of k are at `+ 32`; every eighth row begins at `+ 8 * swizzle`.
template <int swizzle = 128>
__device__ wgmma_operand k_major(const void* tile) {
    return operand_of<swizzle>(tile, 16);
}

// Rows of `swizzle` bytes along M or N, one for each k: only for types of 16 bits. A wider matrix
// is several such boxes, `next` bytes apart. The next 16 of k are at `+ 16 * swizzle`.
template <int swizzle = 128>
__device__ wgmma_operand mn_major(const void* tile, int next) {
    return operand_of<swizzle>(tile, next);
}

// What an instruction is called for an element type, in the first and in the second place.
template <typename T>
struct wgmma_type;
#define DOTCU_TYPE(T, shape, name, bits_of)                   \
    template <>                                               \
    struct wgmma_type<T> {                                    \
        static constexpr const char first[] = shape "." name; \
        static constexpr const char second[] = "." name;      \
        static constexpr int bits = bits_of;                  \
    };
DOTCU_TYPE(__half, "k16.f32", "f16", 16)
DOTCU_TYPE(__nv_bfloat16, "k16.f32", "bf16", 16)
DOTCU_TYPE(float, "k8.f32", "tf32", 32)
DOTCU_TYPE(__nv_fp8_e4m3, "k32.f32", "e4m3", 8)
DOTCU_TYPE(__nv_fp8_e5m2, "k32.f32", "e5m2", 8)
#undef DOTCU_TYPE

// The immediates: signs, and which of the operands are MN-major.
template <bool choice, bool from_registers, bool a_mn, bool b_mn>
struct wgmma_flags {
    static_assert(choice || !(a_mn || b_mn), "only types of 16 bits may be MN-major");
    static constexpr bool a_choice = choice && !from_registers;
    static constexpr char a[] = {a_choice ? ',' : ' ', a_choice ? char('0' + a_mn) : ' '};
    static constexpr char b[] = {choice ? ',' : ' ', choice ? char('0' + b_mn) : ' '};
    static constexpr const char text[] = {',', '1', ',', '1', a[0], a[1], b[0], b[1], 0};
};

// The instruction of each N. Operands: 0 b, 1 whether d is added to, 2 a (2 to 5 in registers),
// from 6 on d, then three texts. Only d changes; the others are listed so to have the same numbers.
template <int n>
struct wgmma_shape;
#define DOTCU_ROWS_8(F) F("", 0, 6, 7, 8, 9)
#define DOTCU_ROWS_16(F) DOTCU_ROWS_8(F) F(",", 4, 10, 11, 12, 13)
#define DOTCU_ROWS_24(F) DOTCU_ROWS_16(F) F(",", 8, 14, 15, 16, 17)
#define DOTCU_ROWS_32(F) DOTCU_ROWS_24(F) F(",", 12, 18, 19, 20, 21)
#define DOTCU_ROWS_40(F) DOTCU_ROWS_32(F) F(",", 16, 22, 23, 24, 25)
#define DOTCU_ROWS_48(F) DOTCU_ROWS_40(F) F(",", 20, 26, 27, 28, 29)
#define DOTCU_ROWS_56(F) DOTCU_ROWS_48(F) F(",", 24, 30, 31, 32, 33)
#define DOTCU_ROWS_64(F) DOTCU_ROWS_56(F) F(",", 28, 34, 35, 36, 37)
#define DOTCU_ROWS_72(F) DOTCU_ROWS_64(F) F(",", 32, 38, 39, 40, 41)
#define DOTCU_ROWS_80(F) DOTCU_ROWS_72(F) F(",", 36, 42, 43, 44, 45)
#define DOTCU_ROWS_88(F) DOTCU_ROWS_80(F) F(",", 40, 46, 47, 48, 49)
#define DOTCU_ROWS_96(F) DOTCU_ROWS_88(F) F(",", 44, 50, 51, 52, 53)
#define DOTCU_ROWS_104(F) DOTCU_ROWS_96(F) F(",", 48, 54, 55, 56, 57)
#define DOTCU_ROWS_112(F) DOTCU_ROWS_104(F) F(",", 52, 58, 59, 60, 61)
#define DOTCU_ROWS_120(F) DOTCU_ROWS_112(F) F(",", 56, 62, 63, 64, 65)
#define DOTCU_ROWS_128(F) DOTCU_ROWS_120(F) F(",", 60, 66, 67, 68, 69)
#define DOTCU_ROWS_136(F) DOTCU_ROWS_128(F) F(",", 64, 70, 71, 72, 73)
#define DOTCU_ROWS_144(F) DOTCU_ROWS_136(F) F(",", 68, 74, 75, 76, 77)
#define DOTCU_ROWS_152(F) DOTCU_ROWS_144(F) F(",", 72, 78, 79, 80, 81)
#define DOTCU_ROWS_160(F) DOTCU_ROWS_152(F) F(",", 76, 82, 83, 84, 85)
#define DOTCU_ROWS_168(F) DOTCU_ROWS_160(F) F(",", 80, 86, 87, 88, 89)
#define DOTCU_ROWS_176(F) DOTCU_ROWS_168(F) F(",", 84, 90, 91, 92, 93)
#define DOTCU_ROWS_184(F) DOTCU_ROWS_176(F) F(",", 88, 94, 95, 96, 97)
#define DOTCU_ROWS_192(F) DOTCU_ROWS_184(F) F(",", 92, 98, 99, 100, 101)
#define DOTCU_ROWS_200(F) DOTCU_ROWS_192(F) F(",", 96, 102, 103, 104, 105)
#define DOTCU_ROWS_208(F) DOTCU_ROWS_200(F) F(",", 100, 106, 107, 108, 109)
#define DOTCU_ROWS_216(F) DOTCU_ROWS_208(F) F(",", 104, 110, 111, 112, 113)
#define DOTCU_ROWS_224(F) DOTCU_ROWS_216(F) F(",", 108, 114, 115, 116, 117)
#define DOTCU_ROWS_232(F) DOTCU_ROWS_224(F) F(",", 112, 118, 119, 120, 121)
#define DOTCU_ROWS_240(F) DOTCU_ROWS_232(F) F(",", 116, 122, 123, 124, 125)
#define DOTCU_ROWS_248(F) DOTCU_ROWS_240(F) F(",", 120, 126, 127, 128, 129)
#define DOTCU_ROWS_256(F) DOTCU_ROWS_248(F) F(",", 124, 130, 131, 132, 133)
#define DOTCU_TEXT(comma, i, p, q, r, s) comma "%" #p ",%" #q ",%" #r ",%" #s
#define DOTCU_SUMS(comma, i, p, q, r, s) \
    , "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define DOTCU_WGMMA(n, t0, t1, t2)                                                  \
    template <>                                                                     \
    struct wgmma_shape<n> {                                                         \
        template <typename A, typename B, typename Flags>                           \
        __device__ static void shared(float (&d)[n / 2], unsigned long long a,      \
                                      unsigned long long b, int add) {              \
            int none[3] = {};                                                       \
            asm volatile(                                                           \
                "{ .reg .pred p; setp.ne.b32 p, %1, 0;\n"                           \
                "wgmma.mma_async.sync.aligned.m64n" #n "%" #t0 "%" #t1              \
                "{" DOTCU_ROWS_##n(DOTCU_TEXT) "}, %2, %0, p%" #t2 "; }"            \
                : "+l"(b), "+r"(add), "+l"(a), "+r"(none[0]), "+r"(none[1]),        \
                  "+r"(none[2])DOTCU_ROWS_##n(DOTCU_SUMS)                           \
                : "C"(A::first), "C"(B::second), "C"(Flags::text));                 \
        }                                                                           \
        template <typename A, typename B, typename Flags>                           \
        __device__ static void registers(float (&d)[n / 2], const unsigned (&a)[4], \
                                         unsigned long long b, int add) {           \
            unsigned a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3];                    \
            asm volatile(                                                           \
                "{ .reg .pred p; setp.ne.b32 p, %1, 0;\n"                           \
                "wgmma.mma_async.sync.aligned.m64n" #n "%" #t0 "%" #t1              \
                "{" DOTCU_ROWS_##n(DOTCU_TEXT) "}, {%2,%3,%4,%5}, %0, p%" #t2 "; }" \
                : "+l"(b), "+r"(add), "+r"(a0), "+r"(a1), "+r"(a2),                 \
                  "+r"(a3)DOTCU_ROWS_##n(DOTCU_SUMS)                                \
                : "C"(A::first), "C"(B::second), "C"(Flags::text));                 \
        }                                                                           \
    };
// clang-format off
DOTCU_WGMMA(8, 10, 11, 12) DOTCU_WGMMA(16, 14, 15, 16) DOTCU_WGMMA(24, 18, 19, 20)
DOTCU_WGMMA(32, 22, 23, 24) DOTCU_WGMMA(40, 26, 27, 28) DOTCU_WGMMA(48, 30, 31, 32)
DOTCU_WGMMA(56, 34, 35, 36) DOTCU_WGMMA(64, 38, 39, 40) DOTCU_WGMMA(72, 42, 43, 44)
DOTCU_WGMMA(80, 46, 47, 48) DOTCU_WGMMA(88, 50, 51, 52) DOTCU_WGMMA(96, 54, 55, 56)
DOTCU_WGMMA(104, 58, 59, 60) DOTCU_WGMMA(112, 62, 63, 64) DOTCU_WGMMA(120, 66, 67, 68)
DOTCU_WGMMA(128, 70, 71, 72) DOTCU_WGMMA(136, 74, 75, 76) DOTCU_WGMMA(144, 78, 79, 80)
DOTCU_WGMMA(152, 82, 83, 84) DOTCU_WGMMA(160, 86, 87, 88) DOTCU_WGMMA(168, 90, 91, 92)
DOTCU_WGMMA(176, 94, 95, 96) DOTCU_WGMMA(184, 98, 99, 100) DOTCU_WGMMA(192, 102, 103, 104)
DOTCU_WGMMA(200, 106, 107, 108) DOTCU_WGMMA(208, 110, 111, 112) DOTCU_WGMMA(216, 114, 115, 116)
DOTCU_WGMMA(224, 118, 119, 120) DOTCU_WGMMA(232, 122, 123, 124) DOTCU_WGMMA(240, 126, 127, 128)
DOTCU_WGMMA(248, 130, 131, 132) DOTCU_WGMMA(256, 134, 135, 136)
// clang-format on
#undef DOTCU_WGMMA

    // d = a @ b.T + (add ? d : 0), asynchronously. A and B: the element types, of 8 bits also
    // different ones. a_mn, b_mn: that operand is MN-major.
    template <typename A, typename B = A, bool a_mn = false, bool b_mn = false, int size>
    __device__ void wgmma(float (&d)[size], wgmma_operand a, wgmma_operand b, bool add = true) {
    using Flags = wgmma_flags<wgmma_type<A>::bits == 16, false, a_mn, b_mn>;
    wgmma_shape<2 * size>::template shared<wgmma_type<A>, wgmma_type<B>, Flags>(d, a.bits, b.bits,
                                                                                add);
}

// With a in registers, 32 bits each: for 16-bit types a thread has, as in d, two columns of row t /
// 32
// * 16 + t % 32 / 4, of eight rows below, and of both eight columns further right.
template <typename A, typename B = A, bool b_mn = false, int size>
__device__ void wgmma(float (&d)[size], const unsigned (&a)[4], wgmma_operand b, bool add = true) {
    using Flags = wgmma_flags<wgmma_type<A>::bits == 16, true, false, b_mn>;
    wgmma_shape<2 * size>::template registers<wgmma_type<A>, wgmma_type<B>, Flags>(d, a, b.bits,
                                                                                   add);
}

// Keeps the compiler from moving what uses a register across.
__device__ inline void keep_here(float& value) { asm volatile("" : "+f"(value)::"memory"); }
__device__ inline void keep_here(unsigned& value) { asm volatile("" : "+r"(value)::"memory"); }
template <typename T, int size>
__device__ void keep_here(T (&values)[size]) {
#pragma unroll
    for (int i = 0; i < size; ++i) keep_here(values[i]);
}

// Before the first product, and after registers that it reads were written.
template <typename... Registers>
__device__ void wgmma_fence(Registers&... registers) {
    (keep_here(registers), ...);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Closes the group of products since the last one.
__device__ inline void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until all groups except the `pending` latest are complete; give what they wrote or read.
template <int pending, typename... Registers>
__device__ void wgmma_wait(Registers&... registers) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
    (keep_here(registers), ...);
}

}  // namespace dotcu
