// fma of bf16, alone and in pairs.

#include "spellings.cuh"

SPELLED(half_fma_bf16) {
    OPERANDS;
    TERNARY("fma.rn.bf16", u16, u16, u16, u16);
    TERNARY("fma.rn.relu.bf16", u16, u16, u16, u16);
    TERNARY("fma.rn.bf16x2", u32, u32, u32, u32);
    TERNARY("fma.rn.relu.bf16x2", u32, u32, u32, u32);
}
