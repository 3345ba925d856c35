// mma of f16 that adds up in f16, in both shapes.

#include "matrix.cuh"

extern "C" __global__ void matrix_f16_sums(const u32* as, const u32* bs, const u32* cs, half* out) {
    {
        u32 a[2], b[1], c[2], d[2];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%5, %6};"
            : "=r"(d[0]), "=r"(d[1])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        store(d, out + 0);
    }
    {
        u32 a[4], b[2], c[2], d[2];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, "
            "%7}, {%8, %9};"
            : "=r"(d[0]), "=r"(d[1])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]),
              "r"(c[1]));
        store(d, out + 128);
    }
}
