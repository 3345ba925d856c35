// cvt of a pair of fp8 to a pair of f16.

#include "spellings.cuh"

SPELLED(convert_from_fp8) {
    OPERANDS;
    UNARY("cvt.rn.f16x2.e4m3x2", u32, u16);
    UNARY("cvt.rn.relu.f16x2.e4m3x2", u32, u16);
    UNARY("cvt.rn.f16x2.e5m2x2", u32, u16);
    UNARY("cvt.rn.relu.f16x2.e5m2x2", u32, u16);
}
