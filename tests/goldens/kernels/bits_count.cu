// popc, clz, brev and bfind.

#include "spellings.cuh"

SPELLED(bits_count) {
    OPERANDS;
    UNARY("popc.b32", u32, u32);
    UNARY("popc.b64", u32, u64);
    UNARY("clz.b32", u32, u32);
    UNARY("clz.b64", u32, u64);
    UNARY("brev.b32", u32, u32);
    UNARY("brev.b64", u64, u64);
    UNARY("bfind.u32", u32, u32);
    UNARY("bfind.s32", u32, u32);
    UNARY("bfind.u64", u32, u64);
    UNARY("bfind.s64", u32, u64);
    UNARY("bfind.shiftamt.u32", u32, u32);
    UNARY("bfind.shiftamt.s32", u32, u32);
    UNARY("bfind.shiftamt.u64", u32, u64);
    UNARY("bfind.shiftamt.s64", u32, u64);
}
