// sqrt of f32, in every rounding mode.

#include "spellings.cuh"

SPELLED(float_root) {
    OPERANDS;
    UNARY("sqrt.rn.f32", u32, u32);
    UNARY("sqrt.rn.ftz.f32", u32, u32);
    UNARY("sqrt.rz.f32", u32, u32);
    UNARY("sqrt.rz.ftz.f32", u32, u32);
    UNARY("sqrt.rm.f32", u32, u32);
    UNARY("sqrt.rm.ftz.f32", u32, u32);
    UNARY("sqrt.rp.f32", u32, u32);
    UNARY("sqrt.rp.ftz.f32", u32, u32);
}
