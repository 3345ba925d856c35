// mma of 8-bit integers, in every shape and signedness, wrapping and saturating.

#include "matrix.cuh"

extern "C" __global__ void matrix_int8(const u32* as, const u32* bs, const u32* cs, int* out) {
    {
        u32 a[1], b[1], c[2], d[2];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%0, %1}, {%2}, {%3}, {%4, %5};"
            : "=r"(d[0]), "=r"(d[1])
            : "r"(a[0]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        store(d, out + 0);
    }
    {
        u32 a[1], b[1], c[2], d[2];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m8n8k16.row.col.satfinite.s32.u8.u8.s32 {%0, %1}, {%2}, {%3}, {%4, "
            "%5};"
            : "=r"(d[0]), "=r"(d[1])
            : "r"(a[0]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        store(d, out + 64);
    }
    {
        u32 a[2], b[1], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%7, %8, %9, %10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 128);
    }
    {
        u32 a[2], b[1], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.satfinite.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5}, "
            "{%6}, {%7, %8, %9, %10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 256);
    }
    {
        u32 a[4], b[2], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
            "{%8, %9}, {%10, %11, %12, %13};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]),
              "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 384);
    }
    {
        u32 a[4], b[2], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, "
            "%6, %7}, {%8, %9}, {%10, %11, %12, %13};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]),
              "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 512);
    }
    {
        u32 a[1], b[1], c[2], d[2];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0, %1}, {%2}, {%3}, {%4, %5};"
            : "=r"(d[0]), "=r"(d[1])
            : "r"(a[0]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        store(d, out + 640);
    }
    {
        u32 a[1], b[1], c[2], d[2];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m8n8k16.row.col.satfinite.s32.u8.s8.s32 {%0, %1}, {%2}, {%3}, {%4, "
            "%5};"
            : "=r"(d[0]), "=r"(d[1])
            : "r"(a[0]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        store(d, out + 704);
    }
    {
        u32 a[2], b[1], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%7, %8, %9, %10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 768);
    }
    {
        u32 a[2], b[1], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.satfinite.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, "
            "{%6}, {%7, %8, %9, %10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 896);
    }
    {
        u32 a[4], b[2], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
            "{%8, %9}, {%10, %11, %12, %13};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]),
              "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 1024);
    }
    {
        u32 a[4], b[2], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, "
            "%6, %7}, {%8, %9}, {%10, %11, %12, %13};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]),
              "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 1152);
    }
    {
        u32 a[1], b[1], c[2], d[2];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m8n8k16.row.col.s32.s8.u8.s32 {%0, %1}, {%2}, {%3}, {%4, %5};"
            : "=r"(d[0]), "=r"(d[1])
            : "r"(a[0]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        store(d, out + 1280);
    }
    {
        u32 a[1], b[1], c[2], d[2];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.u8.s32 {%0, %1}, {%2}, {%3}, {%4, "
            "%5};"
            : "=r"(d[0]), "=r"(d[1])
            : "r"(a[0]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        store(d, out + 1344);
    }
    {
        u32 a[2], b[1], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%7, %8, %9, %10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 1408);
    }
    {
        u32 a[2], b[1], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5}, "
            "{%6}, {%7, %8, %9, %10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 1536);
    }
    {
        u32 a[4], b[2], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
            "{%8, %9}, {%10, %11, %12, %13};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]),
              "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 1664);
    }
    {
        u32 a[4], b[2], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, "
            "%6, %7}, {%8, %9}, {%10, %11, %12, %13};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]),
              "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 1792);
    }
    {
        u32 a[1], b[1], c[2], d[2];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%4, %5};"
            : "=r"(d[0]), "=r"(d[1])
            : "r"(a[0]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        store(d, out + 1920);
    }
    {
        u32 a[1], b[1], c[2], d[2];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%4, "
            "%5};"
            : "=r"(d[0]), "=r"(d[1])
            : "r"(a[0]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        store(d, out + 1984);
    }
    {
        u32 a[2], b[1], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%7, %8, %9, %10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 2048);
    }
    {
        u32 a[2], b[1], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, "
            "{%6}, {%7, %8, %9, %10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 2176);
    }
    {
        u32 a[4], b[2], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
            "{%8, %9}, {%10, %11, %12, %13};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]),
              "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 2304);
    }
    {
        u32 a[4], b[2], c[4], d[4];
        load(a, as), load(b, bs), load(c, cs);
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, "
            "%6, %7}, {%8, %9}, {%10, %11, %12, %13};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]),
              "r"(c[1]), "r"(c[2]), "r"(c[3]));
        store(d, out + 2432);
    }
}
