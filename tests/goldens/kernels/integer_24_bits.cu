// mul24 and mad24: products of the lower 24 bits; and mad.hi.sat.s32, which cannot stand beside a
// mad.hi.s32 of the same operands: ptxas 13.0 then takes both for one and drops the saturation.

#include "spellings.cuh"

SPELLED(integer_24_bits) {
    OPERANDS;
    BINARY("mul24.lo.u32", u32, u32, u32);
    BINARY("mul24.lo.s32", u32, u32, u32);
    BINARY("mul24.hi.u32", u32, u32, u32);
    BINARY("mul24.hi.s32", u32, u32, u32);
    TERNARY("mad24.lo.u32", u32, u32, u32, u32);
    TERNARY("mad24.lo.s32", u32, u32, u32, u32);
    TERNARY("mad24.hi.u32", u32, u32, u32, u32);
    TERNARY("mad24.hi.s32", u32, u32, u32, u32);
    TERNARY("mad24.hi.sat.s32", u32, u32, u32, u32);
    TERNARY("mad.hi.sat.s32", u32, u32, u32, u32);
}
