// cvt of f16 to floats.

#include "spellings.cuh"

SPELLED(convert_f16) {
    OPERANDS;
    UNARY("cvt.f32.f16", u32, u16);
    UNARY("cvt.sat.f32.f16", u32, u16);
    UNARY("cvt.ftz.f32.f16", u32, u16);
    UNARY("cvt.ftz.sat.f32.f16", u32, u16);
    UNARY("cvt.f64.f16", u64, u16);
    UNARY("cvt.sat.f64.f16", u64, u16);
    UNARY("cvt.rni.f16.f16", u16, u16);
    UNARY("cvt.rni.sat.f16.f16", u16, u16);
    UNARY("cvt.rzi.f16.f16", u16, u16);
    UNARY("cvt.rzi.sat.f16.f16", u16, u16);
    UNARY("cvt.rmi.f16.f16", u16, u16);
    UNARY("cvt.rmi.sat.f16.f16", u16, u16);
    UNARY("cvt.rpi.f16.f16", u16, u16);
    UNARY("cvt.rpi.sat.f16.f16", u16, u16);
    UNARY("cvt.rn.bf16.f16", u16, u16);
    UNARY("cvt.rz.bf16.f16", u16, u16);
    UNARY("cvt.rm.bf16.f16", u16, u16);
    UNARY("cvt.rp.bf16.f16", u16, u16);
    UNARY("cvt.f16.f16", u16, u16);
    UNARY("cvt.sat.f16.f16", u16, u16);
    UNARY("cvt.bf16.f16", u16, u16);
}
