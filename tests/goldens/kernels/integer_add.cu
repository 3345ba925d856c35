// add and sub of integers, modulo 2^n and saturated.

#include "spellings.cuh"

SPELLED(integer_add) {
    OPERANDS;
    BINARY("add.u16", u16, u16, u16);
    BINARY("add.u32", u32, u32, u32);
    BINARY("add.u64", u64, u64, u64);
    BINARY("add.s16", u16, u16, u16);
    BINARY("add.s32", u32, u32, u32);
    BINARY("add.s64", u64, u64, u64);
    BINARY("add.sat.s32", u32, u32, u32);
    BINARY("sub.u16", u16, u16, u16);
    BINARY("sub.u32", u32, u32, u32);
    BINARY("sub.u64", u64, u64, u64);
    BINARY("sub.s16", u16, u16, u16);
    BINARY("sub.s32", u32, u32, u32);
    BINARY("sub.s64", u64, u64, u64);
    BINARY("sub.sat.s32", u32, u32, u32);
}
