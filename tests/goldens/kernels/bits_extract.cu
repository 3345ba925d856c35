// bfe: a bit field, extended by zeros or its sign.

#include "spellings.cuh"

SPELLED(bits_extract) {
    OPERANDS;
    TERNARY("bfe.u32", u32, u32, u32, u32);
    TERNARY("bfe.s32", u32, u32, u32, u32);
    TERNARY("bfe.u64", u64, u64, u32, u32);
    TERNARY("bfe.s64", u64, u64, u32, u32);
}
