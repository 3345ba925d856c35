// mad of integers; mad.hi.sat.s32 stands in integer_24_bits.

#include "spellings.cuh"

SPELLED(integer_multiply_add) {
    OPERANDS;
    TERNARY("mad.lo.u16", u16, u16, u16, u16);
    TERNARY("mad.lo.u32", u32, u32, u32, u32);
    TERNARY("mad.lo.u64", u64, u64, u64, u64);
    TERNARY("mad.lo.s16", u16, u16, u16, u16);
    TERNARY("mad.lo.s32", u32, u32, u32, u32);
    TERNARY("mad.lo.s64", u64, u64, u64, u64);
    TERNARY("mad.hi.u16", u16, u16, u16, u16);
    TERNARY("mad.hi.u32", u32, u32, u32, u32);
    TERNARY("mad.hi.u64", u64, u64, u64, u64);
    TERNARY("mad.hi.s16", u16, u16, u16, u16);
    TERNARY("mad.hi.s32", u32, u32, u32, u32);
    TERNARY("mad.hi.s64", u64, u64, u64, u64);
    TERNARY("mad.wide.u16", u32, u16, u16, u32);
    TERNARY("mad.wide.s16", u32, u16, u16, u32);
    TERNARY("mad.wide.u32", u64, u32, u32, u64);
    TERNARY("mad.wide.s32", u64, u32, u32, u64);
}
