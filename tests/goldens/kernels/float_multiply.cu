// mul of f32, in every rounding mode.

#include "spellings.cuh"

SPELLED(float_multiply) {
    OPERANDS;
    BINARY("mul.f32", u32, u32, u32);
    BINARY("mul.sat.f32", u32, u32, u32);
    BINARY("mul.ftz.f32", u32, u32, u32);
    BINARY("mul.ftz.sat.f32", u32, u32, u32);
    BINARY("mul.rn.f32", u32, u32, u32);
    BINARY("mul.rn.sat.f32", u32, u32, u32);
    BINARY("mul.rn.ftz.f32", u32, u32, u32);
    BINARY("mul.rn.ftz.sat.f32", u32, u32, u32);
    BINARY("mul.rz.f32", u32, u32, u32);
    BINARY("mul.rz.sat.f32", u32, u32, u32);
    BINARY("mul.rz.ftz.f32", u32, u32, u32);
    BINARY("mul.rz.ftz.sat.f32", u32, u32, u32);
    BINARY("mul.rm.f32", u32, u32, u32);
    BINARY("mul.rm.sat.f32", u32, u32, u32);
    BINARY("mul.rm.ftz.f32", u32, u32, u32);
    BINARY("mul.rm.ftz.sat.f32", u32, u32, u32);
    BINARY("mul.rp.f32", u32, u32, u32);
    BINARY("mul.rp.sat.f32", u32, u32, u32);
    BINARY("mul.rp.ftz.f32", u32, u32, u32);
    BINARY("mul.rp.ftz.sat.f32", u32, u32, u32);
}
