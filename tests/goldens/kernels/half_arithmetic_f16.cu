// add, sub and mul of f16, alone and in pairs.

#include "spellings.cuh"

SPELLED(half_arithmetic_f16) {
    OPERANDS;
    BINARY("add.f16", u16, u16, u16);
    BINARY("add.sat.f16", u16, u16, u16);
    BINARY("add.ftz.f16", u16, u16, u16);
    BINARY("add.ftz.sat.f16", u16, u16, u16);
    BINARY("add.rn.f16", u16, u16, u16);
    BINARY("add.rn.sat.f16", u16, u16, u16);
    BINARY("add.rn.ftz.f16", u16, u16, u16);
    BINARY("add.rn.ftz.sat.f16", u16, u16, u16);
    BINARY("add.f16x2", u32, u32, u32);
    BINARY("add.sat.f16x2", u32, u32, u32);
    BINARY("add.ftz.f16x2", u32, u32, u32);
    BINARY("add.ftz.sat.f16x2", u32, u32, u32);
    BINARY("add.rn.f16x2", u32, u32, u32);
    BINARY("add.rn.sat.f16x2", u32, u32, u32);
    BINARY("add.rn.ftz.f16x2", u32, u32, u32);
    BINARY("add.rn.ftz.sat.f16x2", u32, u32, u32);
    BINARY("sub.f16", u16, u16, u16);
    BINARY("sub.sat.f16", u16, u16, u16);
    BINARY("sub.ftz.f16", u16, u16, u16);
    BINARY("sub.ftz.sat.f16", u16, u16, u16);
    BINARY("sub.rn.f16", u16, u16, u16);
    BINARY("sub.rn.sat.f16", u16, u16, u16);
    BINARY("sub.rn.ftz.f16", u16, u16, u16);
    BINARY("sub.rn.ftz.sat.f16", u16, u16, u16);
    BINARY("sub.f16x2", u32, u32, u32);
    BINARY("sub.sat.f16x2", u32, u32, u32);
    BINARY("sub.ftz.f16x2", u32, u32, u32);
    BINARY("sub.ftz.sat.f16x2", u32, u32, u32);
    BINARY("sub.rn.f16x2", u32, u32, u32);
    BINARY("sub.rn.sat.f16x2", u32, u32, u32);
    BINARY("sub.rn.ftz.f16x2", u32, u32, u32);
    BINARY("sub.rn.ftz.sat.f16x2", u32, u32, u32);
    BINARY("mul.f16", u16, u16, u16);
    BINARY("mul.sat.f16", u16, u16, u16);
    BINARY("mul.ftz.f16", u16, u16, u16);
    BINARY("mul.ftz.sat.f16", u16, u16, u16);
    BINARY("mul.rn.f16", u16, u16, u16);
    BINARY("mul.rn.sat.f16", u16, u16, u16);
    BINARY("mul.rn.ftz.f16", u16, u16, u16);
    BINARY("mul.rn.ftz.sat.f16", u16, u16, u16);
    BINARY("mul.f16x2", u32, u32, u32);
    BINARY("mul.sat.f16x2", u32, u32, u32);
    BINARY("mul.ftz.f16x2", u32, u32, u32);
    BINARY("mul.ftz.sat.f16x2", u32, u32, u32);
    BINARY("mul.rn.f16x2", u32, u32, u32);
    BINARY("mul.rn.sat.f16x2", u32, u32, u32);
    BINARY("mul.rn.ftz.f16x2", u32, u32, u32);
    BINARY("mul.rn.ftz.sat.f16x2", u32, u32, u32);
}
