// min, max, abs and neg of f16.

#include "spellings.cuh"

SPELLED(half_extremes_f16) {
    OPERANDS;
    BINARY("min.f16", u16, u16, u16);
    BINARY("min.NaN.f16", u16, u16, u16);
    BINARY("min.ftz.f16", u16, u16, u16);
    BINARY("min.ftz.NaN.f16", u16, u16, u16);
    BINARY("min.f16x2", u32, u32, u32);
    BINARY("min.NaN.f16x2", u32, u32, u32);
    BINARY("min.ftz.f16x2", u32, u32, u32);
    BINARY("min.ftz.NaN.f16x2", u32, u32, u32);
    BINARY("max.f16", u16, u16, u16);
    BINARY("max.NaN.f16", u16, u16, u16);
    BINARY("max.ftz.f16", u16, u16, u16);
    BINARY("max.ftz.NaN.f16", u16, u16, u16);
    BINARY("max.f16x2", u32, u32, u32);
    BINARY("max.NaN.f16x2", u32, u32, u32);
    BINARY("max.ftz.f16x2", u32, u32, u32);
    BINARY("max.ftz.NaN.f16x2", u32, u32, u32);
    UNARY("abs.f16", u16, u16);
    UNARY("abs.ftz.f16", u16, u16);
    UNARY("abs.f16x2", u32, u32);
    UNARY("abs.ftz.f16x2", u32, u32);
    UNARY("neg.f16", u16, u16);
    UNARY("neg.ftz.f16", u16, u16);
    UNARY("neg.f16x2", u32, u32);
    UNARY("neg.ftz.f16x2", u32, u32);
}
