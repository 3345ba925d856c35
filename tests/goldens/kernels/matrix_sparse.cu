// mma.sp in every shape, with every type and selector; the last one has metadata in any order.

#include "matrix.cuh"

#define SMALL(d, spelling, selector, a, b, c, e)                                                 \
    asm volatile("mma.sp" spelling                                                               \
                 " {%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%8, %9, %10, %11}, %12, " selector ";" \
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])                                \
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]),  \
                   "r"(c[3]), "r"(e))
#define LARGE(d, spelling, selector, a, b, c, e)                                                \
    asm volatile("mma.sp" spelling                                                              \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, "                    \
                 "{%12, %13, %14, %15}, %16, " selector ";"                                     \
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), \
                   "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(e))
#define SMALL_HALF(d, spelling, selector, a, b, c, e)                                           \
    asm volatile("mma.sp" spelling " {%0, %1}, {%2, %3}, {%4, %5}, {%6, %7}, %8, " selector ";" \
                 : "=r"(d[0]), "=r"(d[1])                                                       \
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(e))
#define LARGE_HALF(d, spelling, selector, a, b, c, e)                                           \
    asm volatile("mma.sp" spelling                                                              \
                 " {%0, %1}, {%2, %3, %4, %5}, {%6, %7, %8, %9}, {%10, %11}, "                  \
                 "%12, " selector ";"                                                           \
                 : "=r"(d[0]), "=r"(d[1])                                                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), \
                   "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(e))

#define EACH(operation, registers, spelling, selector, as, bs, cs, meta) \
    {                                                                    \
        u32 a[4], b[4], c[registers], d[registers];                      \
        load(a, as), load(b, bs), load(c, cs);                           \
        operation(d, spelling, selector, a, b, c, meta[threadIdx.x]);    \
        store(d, out), out += 32 * registers;                            \
    }

#define ORDERED "::ordered_metadata.sync.aligned."
#define PLAIN ".sync.aligned."
#define F16 "row.col.f32.f16.f16.f32"
#define INTEGERS(operation, shape, a, b, selector)                                               \
    EACH(operation, 4, ORDERED shape ".row.col.s32." a "." b ".s32", selector, bits, bits + 128, \
         bits, meta)                                                                             \
    EACH(operation, 4, PLAIN shape ".row.col.satfinite.s32." a "." b ".s32", selector, bits,     \
         bits + 128, bits, meta)

extern "C" __global__ void matrix_sparse(const u32* f16, const u32* bf16, const u32* tf32,
                                         const u32* fp8, const u32* bits, const u32* sums,
                                         const u32* half_sums, const u32* meta,
                                         const u32* tf32_meta, const u32* any_meta, u32* out) {
    EACH(SMALL, 4, ORDERED "m16n8k16." F16, "0", f16, f16 + 128, sums, meta)
    EACH(SMALL, 4, ORDERED "m16n8k16." F16, "1", f16, f16 + 128, sums, meta)
    EACH(SMALL, 4, ORDERED "m16n8k16." F16, "2", f16, f16 + 128, sums, meta)
    EACH(SMALL, 4, PLAIN "m16n8k16." F16, "3", f16, f16 + 128, sums, meta)
    EACH(LARGE, 4, ORDERED "m16n8k32." F16, "0", f16, f16 + 128, sums, meta)
    EACH(LARGE, 4, PLAIN "m16n8k32." F16, "1", f16, f16 + 128, sums, meta)
    EACH(SMALL_HALF, 2, ORDERED "m16n8k16.row.col.f16.f16.f16.f16", "1", f16, f16 + 128, half_sums,
         meta)
    EACH(LARGE_HALF, 2, ORDERED "m16n8k32.row.col.f16.f16.f16.f16", "1", f16, f16 + 128, half_sums,
         meta)
    EACH(SMALL, 4, ORDERED "m16n8k16.row.col.f32.bf16.bf16.f32", "2", bf16, bf16 + 128, sums, meta)
    EACH(LARGE, 4, ORDERED "m16n8k32.row.col.f32.bf16.bf16.f32", "0", bf16, bf16 + 128, sums, meta)
    EACH(SMALL, 4, ORDERED "m16n8k8.row.col.f32.tf32.tf32.f32", "3", tf32, tf32 + 128, sums,
         tf32_meta)
    EACH(LARGE, 4, ORDERED "m16n8k16.row.col.f32.tf32.tf32.f32", "1", tf32, tf32 + 128, sums,
         tf32_meta)
    EACH(LARGE, 4, ORDERED "m16n8k64.row.col.f32.e4m3.e4m3.f32", "0", fp8, fp8 + 128, sums, meta)
    EACH(LARGE, 4, ORDERED "m16n8k64.row.col.f32.e4m3.e5m2.f32", "0", fp8, fp8 + 128, sums, meta)
    INTEGERS(SMALL, "m16n8k32", "s8", "u8", "0")
    INTEGERS(SMALL, "m16n8k32", "u8", "s8", "1")
    INTEGERS(LARGE, "m16n8k64", "s8", "s8", "0")
    INTEGERS(SMALL, "m16n8k64", "s4", "u4", "0")
    INTEGERS(SMALL, "m16n8k64", "u4", "s4", "1")
    INTEGERS(LARGE, "m16n8k128", "s4", "s4", "0")
    EACH(LARGE, 4, PLAIN "m16n8k32." F16, "0", f16, f16 + 128, sums, any_meta)
}
