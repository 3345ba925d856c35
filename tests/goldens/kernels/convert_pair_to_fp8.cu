// cvt of a pair of f16 to a pair of fp8.

#include "spellings.cuh"

SPELLED(convert_pair_to_fp8) {
    OPERANDS;
    UNARY("cvt.rn.satfinite.e4m3x2.f16x2", u16, u32);
    UNARY("cvt.rn.satfinite.relu.e4m3x2.f16x2", u16, u32);
    UNARY("cvt.rn.satfinite.e5m2x2.f16x2", u16, u32);
    UNARY("cvt.rn.satfinite.relu.e5m2x2.f16x2", u16, u32);
}
