// cvt of two f32 to a pair of halves, and of f32 to tf32.

#include "spellings.cuh"

SPELLED(convert_pairs) {
    OPERANDS;
    BINARY("cvt.rn.f16x2.f32", u32, u32, u32);
    BINARY("cvt.rn.relu.f16x2.f32", u32, u32, u32);
    BINARY("cvt.rz.f16x2.f32", u32, u32, u32);
    BINARY("cvt.rz.relu.f16x2.f32", u32, u32, u32);
    BINARY("cvt.rn.bf16x2.f32", u32, u32, u32);
    BINARY("cvt.rn.relu.bf16x2.f32", u32, u32, u32);
    BINARY("cvt.rz.bf16x2.f32", u32, u32, u32);
    BINARY("cvt.rz.relu.bf16x2.f32", u32, u32, u32);
    BINARY("cvt.rn.satfinite.f16x2.f32", u32, u32, u32);
    BINARY("cvt.rn.satfinite.bf16x2.f32", u32, u32, u32);
    UNARY("cvt.rna.tf32.f32", u32, u32);
    UNARY("cvt.rn.tf32.f32", u32, u32);
    UNARY("cvt.rn.relu.tf32.f32", u32, u32);
    UNARY("cvt.rz.tf32.f32", u32, u32);
    UNARY("cvt.rz.relu.tf32.f32", u32, u32);
    BINARY("cvt.rn.satfinite.relu.f16x2.f32", u32, u32, u32);
    BINARY("cvt.rz.satfinite.f16x2.f32", u32, u32, u32);
    BINARY("cvt.rz.satfinite.relu.f16x2.f32", u32, u32, u32);
    BINARY("cvt.rn.satfinite.relu.bf16x2.f32", u32, u32, u32);
    BINARY("cvt.rz.satfinite.bf16x2.f32", u32, u32, u32);
    BINARY("cvt.rz.satfinite.relu.bf16x2.f32", u32, u32, u32);
}
