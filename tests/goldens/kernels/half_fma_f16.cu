// fma of f16, alone and in pairs.

#include "spellings.cuh"

SPELLED(half_fma_f16) {
    OPERANDS;
    TERNARY("fma.rn.f16", u16, u16, u16, u16);
    TERNARY("fma.rn.sat.f16", u16, u16, u16, u16);
    TERNARY("fma.rn.relu.f16", u16, u16, u16, u16);
    TERNARY("fma.rn.ftz.f16", u16, u16, u16, u16);
    TERNARY("fma.rn.ftz.sat.f16", u16, u16, u16, u16);
    TERNARY("fma.rn.ftz.relu.f16", u16, u16, u16, u16);
    TERNARY("fma.rn.f16x2", u32, u32, u32, u32);
    TERNARY("fma.rn.sat.f16x2", u32, u32, u32, u32);
    TERNARY("fma.rn.relu.f16x2", u32, u32, u32, u32);
    TERNARY("fma.rn.ftz.f16x2", u32, u32, u32, u32);
    TERNARY("fma.rn.ftz.sat.f16x2", u32, u32, u32, u32);
    TERNARY("fma.rn.ftz.relu.f16x2", u32, u32, u32, u32);
}
