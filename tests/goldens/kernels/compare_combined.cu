// setp with two predicates, and with a third that they are combined with.

#include "spellings.cuh"

SPELLED(compare_combined) {
    OPERANDS;
    COMPARE_TWICE("setp.lt.s32", u32);
    COMPARE_TWICE("setp.hi.u64", u64);
    COMPARE_TWICE("setp.ltu.f32", u32);
    COMPARE_TWICE("setp.equ.f64", u64);
    COMPARE_AND_COMBINE("setp.ge.and.s16", u16);
    COMPARE_AND_COMBINE("setp.ls.and.u32", u32);
    COMPARE_AND_COMBINE("setp.ne.and.b64", u64);
    COMPARE_AND_COMBINE("setp.gt.and.f32", u32);
    COMPARE_AND_COMBINE("setp.num.and.f32", u32);
    COMPARE_AND_COMBINE("setp.neu.and.f64", u64);
    COMPARE_AND_COMBINE("setp.ge.or.s16", u16);
    COMPARE_AND_COMBINE("setp.ls.or.u32", u32);
    COMPARE_AND_COMBINE("setp.ne.or.b64", u64);
    COMPARE_AND_COMBINE("setp.gt.or.f32", u32);
    COMPARE_AND_COMBINE("setp.num.or.f32", u32);
    COMPARE_AND_COMBINE("setp.neu.or.f64", u64);
    COMPARE_AND_COMBINE("setp.ge.xor.s16", u16);
    COMPARE_AND_COMBINE("setp.ls.xor.u32", u32);
    COMPARE_AND_COMBINE("setp.ne.xor.b64", u64);
    COMPARE_AND_COMBINE("setp.gt.xor.f32", u32);
    COMPARE_AND_COMBINE("setp.num.xor.f32", u32);
    COMPARE_AND_COMBINE("setp.neu.xor.f64", u64);
}
