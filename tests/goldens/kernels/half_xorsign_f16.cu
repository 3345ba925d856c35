// min and max of magnitudes of f16, with the product of the signs.

#include "spellings.cuh"

SPELLED(half_xorsign_f16) {
    OPERANDS;
    BINARY("min.xorsign.abs.f16", u16, u16, u16);
    BINARY("min.NaN.xorsign.abs.f16", u16, u16, u16);
    BINARY("min.ftz.xorsign.abs.f16", u16, u16, u16);
    BINARY("min.ftz.NaN.xorsign.abs.f16", u16, u16, u16);
    BINARY("min.xorsign.abs.f16x2", u32, u32, u32);
    BINARY("min.NaN.xorsign.abs.f16x2", u32, u32, u32);
    BINARY("min.ftz.xorsign.abs.f16x2", u32, u32, u32);
    BINARY("min.ftz.NaN.xorsign.abs.f16x2", u32, u32, u32);
    BINARY("max.xorsign.abs.f16", u16, u16, u16);
    BINARY("max.NaN.xorsign.abs.f16", u16, u16, u16);
    BINARY("max.ftz.xorsign.abs.f16", u16, u16, u16);
    BINARY("max.ftz.NaN.xorsign.abs.f16", u16, u16, u16);
    BINARY("max.xorsign.abs.f16x2", u32, u32, u32);
    BINARY("max.NaN.xorsign.abs.f16x2", u32, u32, u32);
    BINARY("max.ftz.xorsign.abs.f16x2", u32, u32, u32);
    BINARY("max.ftz.NaN.xorsign.abs.f16x2", u32, u32, u32);
}
