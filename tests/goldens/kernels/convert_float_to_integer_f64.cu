// cvt of f64 to integers, in every rounding mode.

#include "spellings.cuh"

SPELLED(convert_float_to_integer_f64) {
    OPERANDS;
    UNARY("cvt.rni.u8.f64", u16, u64);
    UNARY("cvt.rzi.u8.f64", u16, u64);
    UNARY("cvt.rmi.u8.f64", u16, u64);
    UNARY("cvt.rpi.u8.f64", u16, u64);
    UNARY("cvt.rni.s8.f64", u16, u64);
    UNARY("cvt.rzi.s8.f64", u16, u64);
    UNARY("cvt.rmi.s8.f64", u16, u64);
    UNARY("cvt.rpi.s8.f64", u16, u64);
    UNARY("cvt.rni.u16.f64", u16, u64);
    UNARY("cvt.rzi.u16.f64", u16, u64);
    UNARY("cvt.rmi.u16.f64", u16, u64);
    UNARY("cvt.rpi.u16.f64", u16, u64);
    UNARY("cvt.rni.s16.f64", u16, u64);
    UNARY("cvt.rzi.s16.f64", u16, u64);
    UNARY("cvt.rmi.s16.f64", u16, u64);
    UNARY("cvt.rpi.s16.f64", u16, u64);
    UNARY("cvt.rni.u32.f64", u32, u64);
    UNARY("cvt.rzi.u32.f64", u32, u64);
    UNARY("cvt.rmi.u32.f64", u32, u64);
    UNARY("cvt.rpi.u32.f64", u32, u64);
    UNARY("cvt.rni.s32.f64", u32, u64);
    UNARY("cvt.rzi.s32.f64", u32, u64);
    UNARY("cvt.rmi.s32.f64", u32, u64);
    UNARY("cvt.rpi.s32.f64", u32, u64);
    UNARY("cvt.rni.u64.f64", u64, u64);
    UNARY("cvt.rzi.u64.f64", u64, u64);
    UNARY("cvt.rmi.u64.f64", u64, u64);
    UNARY("cvt.rpi.u64.f64", u64, u64);
    UNARY("cvt.rni.s64.f64", u64, u64);
    UNARY("cvt.rzi.s64.f64", u64, u64);
    UNARY("cvt.rmi.s64.f64", u64, u64);
    UNARY("cvt.rpi.s64.f64", u64, u64);
}
