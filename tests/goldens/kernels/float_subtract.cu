// sub of f32, in every rounding mode.

#include "spellings.cuh"

SPELLED(float_subtract) {
    OPERANDS;
    BINARY("sub.f32", u32, u32, u32);
    BINARY("sub.sat.f32", u32, u32, u32);
    BINARY("sub.ftz.f32", u32, u32, u32);
    BINARY("sub.ftz.sat.f32", u32, u32, u32);
    BINARY("sub.rn.f32", u32, u32, u32);
    BINARY("sub.rn.sat.f32", u32, u32, u32);
    BINARY("sub.rn.ftz.f32", u32, u32, u32);
    BINARY("sub.rn.ftz.sat.f32", u32, u32, u32);
    BINARY("sub.rz.f32", u32, u32, u32);
    BINARY("sub.rz.sat.f32", u32, u32, u32);
    BINARY("sub.rz.ftz.f32", u32, u32, u32);
    BINARY("sub.rz.ftz.sat.f32", u32, u32, u32);
    BINARY("sub.rm.f32", u32, u32, u32);
    BINARY("sub.rm.sat.f32", u32, u32, u32);
    BINARY("sub.rm.ftz.f32", u32, u32, u32);
    BINARY("sub.rm.ftz.sat.f32", u32, u32, u32);
    BINARY("sub.rp.f32", u32, u32, u32);
    BINARY("sub.rp.sat.f32", u32, u32, u32);
    BINARY("sub.rp.ftz.f32", u32, u32, u32);
    BINARY("sub.rp.ftz.sat.f32", u32, u32, u32);
}
