// shl and shr; amounts beyond the width are clamped.

#include "spellings.cuh"

SPELLED(integer_shift) {
    OPERANDS;
    BINARY("shl.b16", u16, u16, u32);
    BINARY("shl.b32", u32, u32, u32);
    BINARY("shl.b64", u64, u64, u32);
    BINARY("shr.b16", u16, u16, u32);
    BINARY("shr.b32", u32, u32, u32);
    BINARY("shr.b64", u64, u64, u32);
    BINARY("shr.u16", u16, u16, u32);
    BINARY("shr.u32", u32, u32, u32);
    BINARY("shr.u64", u64, u64, u32);
    BINARY("shr.s16", u16, u16, u32);
    BINARY("shr.s32", u32, u32, u32);
    BINARY("shr.s64", u64, u64, u32);
}
