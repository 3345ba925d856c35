// cvt of f64 to floats.

#include "spellings.cuh"

SPELLED(convert_f64) {
    OPERANDS;
    UNARY("cvt.rn.f32.f64", u32, u64);
    UNARY("cvt.rn.sat.f32.f64", u32, u64);
    UNARY("cvt.rn.ftz.f32.f64", u32, u64);
    UNARY("cvt.rn.ftz.sat.f32.f64", u32, u64);
    UNARY("cvt.rz.f32.f64", u32, u64);
    UNARY("cvt.rz.sat.f32.f64", u32, u64);
    UNARY("cvt.rz.ftz.f32.f64", u32, u64);
    UNARY("cvt.rz.ftz.sat.f32.f64", u32, u64);
    UNARY("cvt.rm.f32.f64", u32, u64);
    UNARY("cvt.rm.sat.f32.f64", u32, u64);
    UNARY("cvt.rm.ftz.f32.f64", u32, u64);
    UNARY("cvt.rm.ftz.sat.f32.f64", u32, u64);
    UNARY("cvt.rp.f32.f64", u32, u64);
    UNARY("cvt.rp.sat.f32.f64", u32, u64);
    UNARY("cvt.rp.ftz.f32.f64", u32, u64);
    UNARY("cvt.rp.ftz.sat.f32.f64", u32, u64);
    UNARY("cvt.rn.f16.f64", u16, u64);
    UNARY("cvt.rn.sat.f16.f64", u16, u64);
    UNARY("cvt.rz.f16.f64", u16, u64);
    UNARY("cvt.rz.sat.f16.f64", u16, u64);
    UNARY("cvt.rm.f16.f64", u16, u64);
    UNARY("cvt.rm.sat.f16.f64", u16, u64);
    UNARY("cvt.rp.f16.f64", u16, u64);
    UNARY("cvt.rp.sat.f16.f64", u16, u64);
    UNARY("cvt.rn.bf16.f64", u16, u64);
    UNARY("cvt.rz.bf16.f64", u16, u64);
    UNARY("cvt.rm.bf16.f64", u16, u64);
    UNARY("cvt.rp.bf16.f64", u16, u64);
    UNARY("cvt.rni.f64.f64", u64, u64);
    UNARY("cvt.rni.sat.f64.f64", u64, u64);
    UNARY("cvt.rzi.f64.f64", u64, u64);
    UNARY("cvt.rzi.sat.f64.f64", u64, u64);
    UNARY("cvt.rmi.f64.f64", u64, u64);
    UNARY("cvt.rmi.sat.f64.f64", u64, u64);
    UNARY("cvt.rpi.f64.f64", u64, u64);
    UNARY("cvt.rpi.sat.f64.f64", u64, u64);
    UNARY("cvt.f64.f64", u64, u64);
    UNARY("cvt.sat.f64.f64", u64, u64);
}
