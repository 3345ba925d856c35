// tanh of f32.

#include "spellings.cuh"

SPELLED(approx_tanh) {
    OPERANDS;
    UNARY("tanh.approx.f32", u32, u32);
}
