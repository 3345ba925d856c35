// mul of integers: the lower half, the upper half, or the whole product.

#include "spellings.cuh"

SPELLED(integer_multiply) {
    OPERANDS;
    BINARY("mul.lo.u16", u16, u16, u16);
    BINARY("mul.lo.u32", u32, u32, u32);
    BINARY("mul.lo.u64", u64, u64, u64);
    BINARY("mul.lo.s16", u16, u16, u16);
    BINARY("mul.lo.s32", u32, u32, u32);
    BINARY("mul.lo.s64", u64, u64, u64);
    BINARY("mul.hi.u16", u16, u16, u16);
    BINARY("mul.hi.u32", u32, u32, u32);
    BINARY("mul.hi.u64", u64, u64, u64);
    BINARY("mul.hi.s16", u16, u16, u16);
    BINARY("mul.hi.s32", u32, u32, u32);
    BINARY("mul.hi.s64", u64, u64, u64);
    BINARY("mul.wide.u16", u32, u16, u16);
    BINARY("mul.wide.s16", u32, u16, u16);
    BINARY("mul.wide.u32", u64, u32, u32);
    BINARY("mul.wide.s32", u64, u32, u32);
}
