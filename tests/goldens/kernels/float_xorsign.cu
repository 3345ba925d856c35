// min and max of magnitudes, with the product of the signs.

#include "spellings.cuh"

SPELLED(float_xorsign) {
    OPERANDS;
    BINARY("min.xorsign.abs.f32", u32, u32, u32);
    BINARY("min.NaN.xorsign.abs.f32", u32, u32, u32);
    BINARY("min.ftz.xorsign.abs.f32", u32, u32, u32);
    BINARY("min.ftz.NaN.xorsign.abs.f32", u32, u32, u32);
    BINARY("max.xorsign.abs.f32", u32, u32, u32);
    BINARY("max.NaN.xorsign.abs.f32", u32, u32, u32);
    BINARY("max.ftz.xorsign.abs.f32", u32, u32, u32);
    BINARY("max.ftz.NaN.xorsign.abs.f32", u32, u32, u32);
}
