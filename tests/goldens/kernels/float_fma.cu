// fma and mad of f32, in every rounding mode.

#include "spellings.cuh"

SPELLED(float_fma) {
    OPERANDS;
    TERNARY("fma.rn.f32", u32, u32, u32, u32);
    TERNARY("fma.rn.sat.f32", u32, u32, u32, u32);
    TERNARY("fma.rn.ftz.f32", u32, u32, u32, u32);
    TERNARY("fma.rn.ftz.sat.f32", u32, u32, u32, u32);
    TERNARY("fma.rz.f32", u32, u32, u32, u32);
    TERNARY("fma.rz.sat.f32", u32, u32, u32, u32);
    TERNARY("fma.rz.ftz.f32", u32, u32, u32, u32);
    TERNARY("fma.rz.ftz.sat.f32", u32, u32, u32, u32);
    TERNARY("fma.rm.f32", u32, u32, u32, u32);
    TERNARY("fma.rm.sat.f32", u32, u32, u32, u32);
    TERNARY("fma.rm.ftz.f32", u32, u32, u32, u32);
    TERNARY("fma.rm.ftz.sat.f32", u32, u32, u32, u32);
    TERNARY("fma.rp.f32", u32, u32, u32, u32);
    TERNARY("fma.rp.sat.f32", u32, u32, u32, u32);
    TERNARY("fma.rp.ftz.f32", u32, u32, u32, u32);
    TERNARY("fma.rp.ftz.sat.f32", u32, u32, u32, u32);
    TERNARY("mad.rn.f32", u32, u32, u32, u32);
    TERNARY("mad.rn.sat.f32", u32, u32, u32, u32);
    TERNARY("mad.rn.ftz.f32", u32, u32, u32, u32);
    TERNARY("mad.rn.ftz.sat.f32", u32, u32, u32, u32);
    TERNARY("mad.rz.f32", u32, u32, u32, u32);
    TERNARY("mad.rz.sat.f32", u32, u32, u32, u32);
    TERNARY("mad.rz.ftz.f32", u32, u32, u32, u32);
    TERNARY("mad.rz.ftz.sat.f32", u32, u32, u32, u32);
    TERNARY("mad.rm.f32", u32, u32, u32, u32);
    TERNARY("mad.rm.sat.f32", u32, u32, u32, u32);
    TERNARY("mad.rm.ftz.f32", u32, u32, u32, u32);
    TERNARY("mad.rm.ftz.sat.f32", u32, u32, u32, u32);
    TERNARY("mad.rp.f32", u32, u32, u32, u32);
    TERNARY("mad.rp.sat.f32", u32, u32, u32, u32);
    TERNARY("mad.rp.ftz.f32", u32, u32, u32, u32);
    TERNARY("mad.rp.ftz.sat.f32", u32, u32, u32, u32);
}
