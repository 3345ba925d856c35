// add of f32, in every rounding mode.

#include "spellings.cuh"

SPELLED(float_add) {
    OPERANDS;
    BINARY("add.f32", u32, u32, u32);
    BINARY("add.sat.f32", u32, u32, u32);
    BINARY("add.ftz.f32", u32, u32, u32);
    BINARY("add.ftz.sat.f32", u32, u32, u32);
    BINARY("add.rn.f32", u32, u32, u32);
    BINARY("add.rn.sat.f32", u32, u32, u32);
    BINARY("add.rn.ftz.f32", u32, u32, u32);
    BINARY("add.rn.ftz.sat.f32", u32, u32, u32);
    BINARY("add.rz.f32", u32, u32, u32);
    BINARY("add.rz.sat.f32", u32, u32, u32);
    BINARY("add.rz.ftz.f32", u32, u32, u32);
    BINARY("add.rz.ftz.sat.f32", u32, u32, u32);
    BINARY("add.rm.f32", u32, u32, u32);
    BINARY("add.rm.sat.f32", u32, u32, u32);
    BINARY("add.rm.ftz.f32", u32, u32, u32);
    BINARY("add.rm.ftz.sat.f32", u32, u32, u32);
    BINARY("add.rp.f32", u32, u32, u32);
    BINARY("add.rp.sat.f32", u32, u32, u32);
    BINARY("add.rp.ftz.f32", u32, u32, u32);
    BINARY("add.rp.ftz.sat.f32", u32, u32, u32);
}
