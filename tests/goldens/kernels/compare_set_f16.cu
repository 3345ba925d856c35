// set of f16: 1.0, or all ones, where a comparison holds.

#include "spellings.cuh"

SPELLED(compare_set_f16) {
    OPERANDS;
    BINARY("set.eq.f16.f16", u16, u16, u16);
    BINARY("set.ne.f16.f16", u16, u16, u16);
    BINARY("set.lt.f16.f16", u16, u16, u16);
    BINARY("set.le.f16.f16", u16, u16, u16);
    BINARY("set.gt.f16.f16", u16, u16, u16);
    BINARY("set.ge.f16.f16", u16, u16, u16);
    BINARY("set.equ.f16.f16", u16, u16, u16);
    BINARY("set.neu.f16.f16", u16, u16, u16);
    BINARY("set.ltu.f16.f16", u16, u16, u16);
    BINARY("set.leu.f16.f16", u16, u16, u16);
    BINARY("set.gtu.f16.f16", u16, u16, u16);
    BINARY("set.geu.f16.f16", u16, u16, u16);
    BINARY("set.num.f16.f16", u16, u16, u16);
    BINARY("set.nan.f16.f16", u16, u16, u16);
    BINARY("set.lt.ftz.f16.f16", u16, u16, u16);
    BINARY("set.gtu.ftz.f16.f16", u16, u16, u16);
    BINARY("set.eq.f16x2.f16x2", u32, u32, u32);
    BINARY("set.ne.f16x2.f16x2", u32, u32, u32);
    BINARY("set.lt.f16x2.f16x2", u32, u32, u32);
    BINARY("set.le.f16x2.f16x2", u32, u32, u32);
    BINARY("set.gt.f16x2.f16x2", u32, u32, u32);
    BINARY("set.ge.f16x2.f16x2", u32, u32, u32);
    BINARY("set.equ.f16x2.f16x2", u32, u32, u32);
    BINARY("set.neu.f16x2.f16x2", u32, u32, u32);
    BINARY("set.ltu.f16x2.f16x2", u32, u32, u32);
    BINARY("set.leu.f16x2.f16x2", u32, u32, u32);
    BINARY("set.gtu.f16x2.f16x2", u32, u32, u32);
    BINARY("set.geu.f16x2.f16x2", u32, u32, u32);
    BINARY("set.num.f16x2.f16x2", u32, u32, u32);
    BINARY("set.nan.f16x2.f16x2", u32, u32, u32);
    BINARY("set.ge.u32.f16x2", u32, u32, u32);
    BINARY("set.ge.ftz.u32.f16x2", u32, u32, u32);
    BINARY("set.ge.s32.f16x2", u32, u32, u32);
    BINARY("set.ge.ftz.s32.f16x2", u32, u32, u32);
    BINARY("set.ge.ftz.f16x2.f16x2", u32, u32, u32);
    BINARY("set.nan.u32.f16x2", u32, u32, u32);
    BINARY("set.nan.ftz.u32.f16x2", u32, u32, u32);
    BINARY("set.nan.s32.f16x2", u32, u32, u32);
    BINARY("set.nan.ftz.s32.f16x2", u32, u32, u32);
    BINARY("set.nan.ftz.f16x2.f16x2", u32, u32, u32);
    BY_BIT("set.lt.and.f16.f16", u16, u16);
    BY_BIT("set.neu.and.f16x2.f16x2", u32, u32);
    BY_BIT("set.lt.or.f16.f16", u16, u16);
    BY_BIT("set.neu.or.f16x2.f16x2", u32, u32);
    BY_BIT("set.lt.xor.f16.f16", u16, u16);
    BY_BIT("set.neu.xor.f16x2.f16x2", u32, u32);
}
