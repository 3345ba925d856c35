// ex2 and tanh of bf16.

#include "spellings.cuh"

SPELLED(approx_half_bf16) {
    OPERANDS;
    UNARY("ex2.approx.ftz.bf16", u16, u16);
    UNARY("ex2.approx.ftz.bf16x2", u32, u32);
    UNARY("tanh.approx.bf16", u16, u16);
    UNARY("tanh.approx.bf16x2", u32, u32);
}
