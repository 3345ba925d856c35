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
}
