// min, max, abs and neg of bf16.

#include "spellings.cuh"

SPELLED(half_extremes_bf16) {
    OPERANDS;
    BINARY("min.bf16", u16, u16, u16);
    BINARY("min.NaN.bf16", u16, u16, u16);
    BINARY("min.bf16x2", u32, u32, u32);
    BINARY("min.NaN.bf16x2", u32, u32, u32);
    BINARY("max.bf16", u16, u16, u16);
    BINARY("max.NaN.bf16", u16, u16, u16);
    BINARY("max.bf16x2", u32, u32, u32);
    BINARY("max.NaN.bf16x2", u32, u32, u32);
    UNARY("abs.bf16", u16, u16);
    UNARY("abs.bf16x2", u32, u32);
    UNARY("neg.bf16", u16, u16);
    UNARY("neg.bf16x2", u32, u32);
}
