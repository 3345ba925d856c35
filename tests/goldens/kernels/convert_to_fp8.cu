// cvt of two f32, or of a pair of halves, to a pair of fp8.

#include "spellings.cuh"

SPELLED(convert_to_fp8) {
    OPERANDS;
    BINARY("cvt.rn.satfinite.e4m3x2.f32", u16, u32, u32);
    BINARY("cvt.rn.satfinite.relu.e4m3x2.f32", u16, u32, u32);
    BINARY("cvt.rn.satfinite.e5m2x2.f32", u16, u32, u32);
    BINARY("cvt.rn.satfinite.relu.e5m2x2.f32", u16, u32, u32);
}
