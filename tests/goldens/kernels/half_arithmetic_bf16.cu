// add, sub and mul of bf16, alone and in pairs.

#include "spellings.cuh"

SPELLED(half_arithmetic_bf16) {
    OPERANDS;
    BINARY("add.bf16", u16, u16, u16);
    BINARY("add.rn.bf16", u16, u16, u16);
    BINARY("add.bf16x2", u32, u32, u32);
    BINARY("add.rn.bf16x2", u32, u32, u32);
    BINARY("sub.bf16", u16, u16, u16);
    BINARY("sub.rn.bf16", u16, u16, u16);
    BINARY("sub.bf16x2", u32, u32, u32);
    BINARY("sub.rn.bf16x2", u32, u32, u32);
    BINARY("mul.bf16", u16, u16, u16);
    BINARY("mul.rn.bf16", u16, u16, u16);
    BINARY("mul.bf16x2", u32, u32, u32);
    BINARY("mul.rn.bf16x2", u32, u32, u32);
}
