// cvt of bf16 to integers, in every rounding mode.

#include "spellings.cuh"

SPELLED(convert_float_to_integer_bf16) {
    OPERANDS;
    UNARY("cvt.rni.u16.bf16", u16, u16);
    UNARY("cvt.rzi.u16.bf16", u16, u16);
    UNARY("cvt.rmi.u16.bf16", u16, u16);
    UNARY("cvt.rpi.u16.bf16", u16, u16);
    UNARY("cvt.rni.s16.bf16", u16, u16);
    UNARY("cvt.rzi.s16.bf16", u16, u16);
    UNARY("cvt.rmi.s16.bf16", u16, u16);
    UNARY("cvt.rpi.s16.bf16", u16, u16);
    UNARY("cvt.rni.u32.bf16", u32, u16);
    UNARY("cvt.rzi.u32.bf16", u32, u16);
    UNARY("cvt.rmi.u32.bf16", u32, u16);
    UNARY("cvt.rpi.u32.bf16", u32, u16);
    UNARY("cvt.rni.s32.bf16", u32, u16);
    UNARY("cvt.rzi.s32.bf16", u32, u16);
    UNARY("cvt.rmi.s32.bf16", u32, u16);
    UNARY("cvt.rpi.s32.bf16", u32, u16);
    UNARY("cvt.rni.u64.bf16", u64, u16);
    UNARY("cvt.rzi.u64.bf16", u64, u16);
    UNARY("cvt.rmi.u64.bf16", u64, u16);
    UNARY("cvt.rpi.u64.bf16", u64, u16);
    UNARY("cvt.rni.s64.bf16", u64, u16);
    UNARY("cvt.rzi.s64.bf16", u64, u16);
    UNARY("cvt.rmi.s64.bf16", u64, u16);
    UNARY("cvt.rpi.s64.bf16", u64, u16);
}
