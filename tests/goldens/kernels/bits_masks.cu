// bmsk, szext and fns: masks, sign extension from a bit, the n-th set bit.

#include "spellings.cuh"

SPELLED(bits_masks) {
    OPERANDS;
    BINARY("bmsk.clamp.b32", u32, u32, u32);
    BINARY("bmsk.wrap.b32", u32, u32, u32);
    BINARY("szext.clamp.u32", u32, u32, u32);
    BINARY("szext.clamp.s32", u32, u32, u32);
    BINARY("szext.wrap.u32", u32, u32, u32);
    BINARY("szext.wrap.s32", u32, u32, u32);
    FIND_SET("fns.b32");
}
