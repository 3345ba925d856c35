// min and max of f32: a number wins over a NaN, except with .NaN.

#include "spellings.cuh"

SPELLED(float_extremes) {
    OPERANDS;
    BINARY("min.f32", u32, u32, u32);
    BINARY("min.ftz.f32", u32, u32, u32);
    BINARY("min.NaN.f32", u32, u32, u32);
    BINARY("min.ftz.NaN.f32", u32, u32, u32);
    BINARY("max.f32", u32, u32, u32);
    BINARY("max.ftz.f32", u32, u32, u32);
    BINARY("max.NaN.f32", u32, u32, u32);
    BINARY("max.ftz.NaN.f32", u32, u32, u32);
}
