// mul24 and mad24: products of the lower 24 bits.

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
}
