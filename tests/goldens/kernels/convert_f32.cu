// cvt of f32 to floats.

#include "spellings.cuh"

SPELLED(convert_f32) {
    OPERANDS;
    UNARY("cvt.f64.f32", u64, u32);
    UNARY("cvt.ftz.f64.f32", u64, u32);
    UNARY("cvt.sat.f64.f32", u64, u32);
    UNARY("cvt.rni.f32.f32", u32, u32);
    UNARY("cvt.rni.sat.f32.f32", u32, u32);
    UNARY("cvt.rni.ftz.f32.f32", u32, u32);
    UNARY("cvt.rni.ftz.sat.f32.f32", u32, u32);
    UNARY("cvt.rzi.f32.f32", u32, u32);
    UNARY("cvt.rzi.sat.f32.f32", u32, u32);
    UNARY("cvt.rzi.ftz.f32.f32", u32, u32);
    UNARY("cvt.rzi.ftz.sat.f32.f32", u32, u32);
    UNARY("cvt.rmi.f32.f32", u32, u32);
    UNARY("cvt.rmi.sat.f32.f32", u32, u32);
    UNARY("cvt.rmi.ftz.f32.f32", u32, u32);
    UNARY("cvt.rmi.ftz.sat.f32.f32", u32, u32);
    UNARY("cvt.rpi.f32.f32", u32, u32);
    UNARY("cvt.rpi.sat.f32.f32", u32, u32);
    UNARY("cvt.rpi.ftz.f32.f32", u32, u32);
    UNARY("cvt.rpi.ftz.sat.f32.f32", u32, u32);
    UNARY("cvt.f32.f32", u32, u32);
    UNARY("cvt.sat.f32.f32", u32, u32);
    UNARY("cvt.ftz.f32.f32", u32, u32);
    UNARY("cvt.ftz.sat.f32.f32", u32, u32);
    UNARY("cvt.rn.f16.f32", u16, u32);
    UNARY("cvt.rn.sat.f16.f32", u16, u32);
    UNARY("cvt.rn.ftz.f16.f32", u16, u32);
    UNARY("cvt.rn.ftz.sat.f16.f32", u16, u32);
    UNARY("cvt.rz.f16.f32", u16, u32);
    UNARY("cvt.rz.sat.f16.f32", u16, u32);
    UNARY("cvt.rz.ftz.f16.f32", u16, u32);
    UNARY("cvt.rz.ftz.sat.f16.f32", u16, u32);
    UNARY("cvt.rm.f16.f32", u16, u32);
    UNARY("cvt.rm.sat.f16.f32", u16, u32);
    UNARY("cvt.rm.ftz.f16.f32", u16, u32);
    UNARY("cvt.rm.ftz.sat.f16.f32", u16, u32);
    UNARY("cvt.rp.f16.f32", u16, u32);
    UNARY("cvt.rp.sat.f16.f32", u16, u32);
    UNARY("cvt.rp.ftz.f16.f32", u16, u32);
    UNARY("cvt.rp.ftz.sat.f16.f32", u16, u32);
    UNARY("cvt.rn.bf16.f32", u16, u32);
    UNARY("cvt.rn.relu.bf16.f32", u16, u32);
    UNARY("cvt.rz.bf16.f32", u16, u32);
    UNARY("cvt.rz.relu.bf16.f32", u16, u32);
    UNARY("cvt.rn.relu.f16.f32", u16, u32);
    UNARY("cvt.rz.relu.f16.f32", u16, u32);
    UNARY("cvt.rm.bf16.f32", u16, u32);
    UNARY("cvt.rp.bf16.f32", u16, u32);
    UNARY("cvt.rn.satfinite.f16.f32", u16, u32);
    UNARY("cvt.rn.satfinite.bf16.f32", u16, u32);
    UNARY("cvt.rn.satfinite.relu.f16.f32", u16, u32);
    UNARY("cvt.rz.satfinite.f16.f32", u16, u32);
    UNARY("cvt.rz.satfinite.relu.f16.f32", u16, u32);
    UNARY("cvt.rn.ftz.bf16.f32", u16, u32);
    UNARY("cvt.rn.satfinite.relu.bf16.f32", u16, u32);
    UNARY("cvt.rz.ftz.bf16.f32", u16, u32);
    UNARY("cvt.rz.satfinite.bf16.f32", u16, u32);
    UNARY("cvt.rz.satfinite.relu.bf16.f32", u16, u32);
    UNARY("cvt.rm.ftz.bf16.f32", u16, u32);
    UNARY("cvt.rp.ftz.bf16.f32", u16, u32);
    UNARY("cvt.ftz.sat.f64.f32", u64, u32);
    UNARY("cvt.rna.satfinite.tf32.f32", u32, u32);
}
