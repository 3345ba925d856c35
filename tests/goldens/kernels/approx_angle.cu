// sin and cos, of angles up to 100 pi.

#include "spellings.cuh"

SPELLED(approx_angle) {
    OPERANDS;
    UNARY("sin.approx.f32", u32, u32);
    UNARY("sin.approx.ftz.f32", u32, u32);
    UNARY("cos.approx.f32", u32, u32);
    UNARY("cos.approx.ftz.f32", u32, u32);
}
