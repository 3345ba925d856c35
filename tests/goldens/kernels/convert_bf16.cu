// cvt of bf16 to floats.

#include "spellings.cuh"

SPELLED(convert_bf16) {
    OPERANDS;
    UNARY("cvt.f32.bf16", u32, u16);
    UNARY("cvt.f64.bf16", u64, u16);
    UNARY("cvt.rni.bf16.bf16", u16, u16);
    UNARY("cvt.rzi.bf16.bf16", u16, u16);
    UNARY("cvt.rmi.bf16.bf16", u16, u16);
    UNARY("cvt.rpi.bf16.bf16", u16, u16);
    UNARY("cvt.rn.f16.bf16", u16, u16);
    UNARY("cvt.rz.f16.bf16", u16, u16);
    UNARY("cvt.rm.f16.bf16", u16, u16);
    UNARY("cvt.rp.f16.bf16", u16, u16);
    UNARY("cvt.f16.bf16", u16, u16);
    UNARY("cvt.bf16.bf16", u16, u16);
    UNARY("cvt.ftz.f32.bf16", u32, u16);
    UNARY("cvt.rn.f32.bf16", u32, u16);
    UNARY("cvt.rn.ftz.f32.bf16", u32, u16);
    UNARY("cvt.rz.f32.bf16", u32, u16);
    UNARY("cvt.rz.ftz.f32.bf16", u32, u16);
    UNARY("cvt.rm.f32.bf16", u32, u16);
    UNARY("cvt.rm.ftz.f32.bf16", u32, u16);
    UNARY("cvt.rp.f32.bf16", u32, u16);
    UNARY("cvt.rp.ftz.f32.bf16", u32, u16);
    UNARY("cvt.rn.f64.bf16", u64, u16);
    UNARY("cvt.rz.f64.bf16", u64, u16);
    UNARY("cvt.rm.f64.bf16", u64, u16);
    UNARY("cvt.rp.f64.bf16", u64, u16);
}
