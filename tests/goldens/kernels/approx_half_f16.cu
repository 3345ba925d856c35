// ex2 and tanh of f16.

#include "spellings.cuh"

SPELLED(approx_half_f16) {
    OPERANDS;
    UNARY("ex2.approx.f16", u16, u16);
    UNARY("ex2.approx.f16x2", u32, u32);
    UNARY("tanh.approx.f16", u16, u16);
    UNARY("tanh.approx.f16x2", u32, u32);
}
