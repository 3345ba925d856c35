// ex2.

#include "spellings.cuh"

SPELLED(approx_exponential) {
    OPERANDS;
    UNARY("ex2.approx.f32", u32, u32);
    UNARY("ex2.approx.ftz.f32", u32, u32);
}
