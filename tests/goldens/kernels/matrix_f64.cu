// mma of f64, in every shape.

#include "matrix.cuh"

extern "C" __global__ void matrix_f64(const double* as, const double* bs, const double* cs,
                                      double* out) {
    {
        double a[1], b[1], c[2], d[2];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%4, %5};"
            : "=d"(d[0]), "=d"(d[1])
            : "d"(a[0]), "d"(b[0]), "d"(c[0]), "d"(c[1]));
        store(d, out + 0);
    }
    {
        double a[2], b[1], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%7, %8, %9, %10};"
            : "=d"(d[0]), "=d"(d[1]), "=d"(d[2]), "=d"(d[3])
            : "d"(a[0]), "d"(a[1]), "d"(b[0]), "d"(c[0]), "d"(c[1]), "d"(c[2]), "d"(c[3]));
        store(d, out + 64);
    }
    {
        double a[4], b[2], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
            "{%8, %9}, {%10, %11, %12, %13};"
            : "=d"(d[0]), "=d"(d[1]), "=d"(d[2]), "=d"(d[3])
            : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]), "d"(c[0]),
              "d"(c[1]), "d"(c[2]), "d"(c[3]));
        store(d, out + 192);
    }
    {
        double a[8], b[4], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, "
            "%8, %9, %10, %11}, {%12, %13, %14, %15}, {%16, %17, %18, %19};"
            : "=d"(d[0]), "=d"(d[1]), "=d"(d[2]), "=d"(d[3])
            : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]),
              "d"(a[7]), "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]), "d"(c[0]), "d"(c[1]),
              "d"(c[2]), "d"(c[3]));
        store(d, out + 320);
    }
}
