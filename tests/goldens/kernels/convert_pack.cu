// cvt.pack: two clamped integers, alone or below what c has shifted up.

#include "spellings.cuh"

SPELLED(convert_pack) {
    OPERANDS;
    BINARY("cvt.pack.sat.u16.s32", u32, u32, u32);
    BINARY("cvt.pack.sat.s16.s32", u32, u32, u32);
    TERNARY("cvt.pack.sat.u8.s32.b32", u32, u32, u32, u32);
    TERNARY("cvt.pack.sat.s8.s32.b32", u32, u32, u32, u32);
    TERNARY("cvt.pack.sat.u4.s32.b32", u32, u32, u32, u32);
    TERNARY("cvt.pack.sat.s4.s32.b32", u32, u32, u32, u32);
    TERNARY("cvt.pack.sat.u2.s32.b32", u32, u32, u32, u32);
    TERNARY("cvt.pack.sat.s2.s32.b32", u32, u32, u32, u32);
}
