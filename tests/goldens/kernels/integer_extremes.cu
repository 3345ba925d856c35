// min, max, abs, neg and sad of integers.

#include "spellings.cuh"

SPELLED(integer_extremes) {
    OPERANDS;
    BINARY("min.u16", u16, u16, u16);
    BINARY("min.u32", u32, u32, u32);
    BINARY("min.u64", u64, u64, u64);
    BINARY("min.s16", u16, u16, u16);
    BINARY("min.s32", u32, u32, u32);
    BINARY("min.s64", u64, u64, u64);
    BINARY("max.u16", u16, u16, u16);
    BINARY("max.u32", u32, u32, u32);
    BINARY("max.u64", u64, u64, u64);
    BINARY("max.s16", u16, u16, u16);
    BINARY("max.s32", u32, u32, u32);
    BINARY("max.s64", u64, u64, u64);
    BINARY("min.relu.s32", u32, u32, u32);
    BINARY("max.relu.s32", u32, u32, u32);
    UNARY("abs.s16", u16, u16);
    UNARY("abs.s32", u32, u32);
    UNARY("abs.s64", u64, u64);
    UNARY("neg.s16", u16, u16);
    UNARY("neg.s32", u32, u32);
    UNARY("neg.s64", u64, u64);
    TERNARY("sad.u16", u16, u16, u16, u16);
    TERNARY("sad.u32", u32, u32, u32, u32);
    TERNARY("sad.u64", u64, u64, u64, u64);
    TERNARY("sad.s16", u16, u16, u16, u16);
    TERNARY("sad.s32", u32, u32, u32, u32);
    TERNARY("sad.s64", u64, u64, u64, u64);
}
