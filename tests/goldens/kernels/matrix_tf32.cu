// mma of tf32, in both shapes.

#include "matrix.cuh"

extern "C" __global__ void matrix_tf32(const u32* as, const u32* bs, const u32* cs, float* out) {
    {
        u32 a[2], b[1], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%7, %8, %9, %10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 0);
    }
    {
        u32 a[4], b[2], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, "
            "%7}, {%8, %9}, {%10, %11, %12, %13};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]),
              "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 128);
    }
}
