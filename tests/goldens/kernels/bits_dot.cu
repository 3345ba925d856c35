// dp4a and dp2a: dot products of packed integers.

#include "spellings.cuh"

SPELLED(bits_dot) {
    OPERANDS;
    TERNARY("dp4a.u32.u32", u32, u32, u32, u32);
    TERNARY("dp4a.u32.s32", u32, u32, u32, u32);
    TERNARY("dp4a.s32.u32", u32, u32, u32, u32);
    TERNARY("dp4a.s32.s32", u32, u32, u32, u32);
    TERNARY("dp2a.lo.u32.u32", u32, u32, u32, u32);
    TERNARY("dp2a.lo.u32.s32", u32, u32, u32, u32);
    TERNARY("dp2a.lo.s32.u32", u32, u32, u32, u32);
    TERNARY("dp2a.lo.s32.s32", u32, u32, u32, u32);
    TERNARY("dp2a.hi.u32.u32", u32, u32, u32, u32);
    TERNARY("dp2a.hi.u32.s32", u32, u32, u32, u32);
    TERNARY("dp2a.hi.s32.u32", u32, u32, u32, u32);
    TERNARY("dp2a.hi.s32.s32", u32, u32, u32, u32);
}
