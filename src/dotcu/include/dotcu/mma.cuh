// dotcu/mma.cuh: matrix products of a warp (sm_80 and later), and its matrices in shared memory.
//
//     unsigned a[4], b[4];
//     dotcu::load_matrices(a, &a_tile[lane % 16][lane / 16 * 8]);       // 16 rows, 16 of k
//     dotcu::load_matrices<true>(b, &b_tile[lane % 16][lane / 16 * 8]); // 16 of k, 16 columns
//     dotcu::mma<__nv_bfloat16>(d[0], a, b[0], b[1]);                   // columns 0 to 7
//     dotcu::mma<__nv_bfloat16>(d[1], a, b[2], b[3]);                   // columns 8 to 15
//
// d += a @ b, of 16 x k and k x 8 elements, k being 32 bytes: __half, __nv_bfloat16, float (as
// tf32), and on sm_89 __nv_fp8_e4m3 and __nv_fp8_e5m2. Lane l holds, in d[i], the element of row l
// / 4 + i / 2 * 8 and column l % 4 * 2 + i % 2; in a[i], 32 bits of row l / 4 + i % 2 * 8 from byte
// l % 4 * 4 + i / 2 * 16 on; in b[i], 32 bits of column l / 4 from byte l % 4 * 4 + i * 16 on.
//
// You must guarantee that all lanes call, and that the rows that they give begin at 16 bytes.
// Source: PTX ISA, mma, ldmatrix, stmatrix.
#pragma once

struct __half;
struct __nv_bfloat16;
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;

namespace dotcu {

template <typename T>
struct mma_type;
#define DOTCU_TYPE(T, name)                        \
    template <>                                    \
    struct mma_type<T> {                           \
        static constexpr const char text[] = name; \
    }
DOTCU_TYPE(__half, "m16n8k16.row.col.f32.f16.f16.f32");
DOTCU_TYPE(__nv_bfloat16, "m16n8k16.row.col.f32.bf16.bf16.f32");
DOTCU_TYPE(float, "m16n8k8.row.col.f32.tf32.tf32.f32");
DOTCU_TYPE(__nv_fp8_e4m3, "m16n8k32.row.col.f32.e4m3.e4m3.f32");
DOTCU_TYPE(__nv_fp8_e5m2, "m16n8k32.row.col.f32.e5m2.e5m2.f32");
#undef DOTCU_TYPE

template <typename T>
__device__ void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.%10 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "C"(mma_type<T>::text));
}

// Four matrices of 8 rows of 16 bytes: lane l gives the address of row l % 8 of matrix l / 8, and
// gets of matrix i, in m[i], 32 bits of row l / 4, or of a column of 16-bit elements if transposed.
template <bool transposed = false>
__device__ void load_matrices(unsigned (&m)[4], const void* row) {
    const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (transposed) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(from)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(from)
                     : "memory");
    }
}

// The reverse (sm_90 and later).
__device__ inline void store_matrices(void* row, const unsigned (&m)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(row))),
                 "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
                 : "memory");
}

}  // namespace dotcu
