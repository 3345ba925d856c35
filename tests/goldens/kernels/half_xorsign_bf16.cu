// min and max of magnitudes of bf16, with the product of the signs.

#include "spellings.cuh"

SPELLED(half_xorsign_bf16) {
    OPERANDS;
    BINARY("min.xorsign.abs.bf16", u16, u16, u16);
    BINARY("min.NaN.xorsign.abs.bf16", u16, u16, u16);
    BINARY("min.xorsign.abs.bf16x2", u32, u32, u32);
    BINARY("min.NaN.xorsign.abs.bf16x2", u32, u32, u32);
    BINARY("max.xorsign.abs.bf16", u16, u16, u16);
    BINARY("max.NaN.xorsign.abs.bf16", u16, u16, u16);
    BINARY("max.xorsign.abs.bf16x2", u32, u32, u32);
    BINARY("max.NaN.xorsign.abs.bf16x2", u32, u32, u32);
}
