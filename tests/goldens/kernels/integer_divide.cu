// div and rem of integers, by zero too.

#include "spellings.cuh"

SPELLED(integer_divide) {
    OPERANDS;
    BINARY("div.u16", u16, u16, u16);
    BINARY("div.u32", u32, u32, u32);
    BINARY("div.u64", u64, u64, u64);
    BINARY("div.s16", u16, u16, u16);
    BINARY("div.s32", u32, u32, u32);
    BINARY("div.s64", u64, u64, u64);
    BINARY("rem.u16", u16, u16, u16);
    BINARY("rem.u32", u32, u32, u32);
    BINARY("rem.u64", u64, u64, u64);
    BINARY("rem.s16", u16, u16, u16);
    BINARY("rem.s32", u32, u32, u32);
    BINARY("rem.s64", u64, u64, u64);
}
