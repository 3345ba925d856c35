// set of bf16: 1.0, or all ones, where a comparison holds.

#include "spellings.cuh"

SPELLED(compare_set_bf16) {
    OPERANDS;
    BINARY("set.eq.bf16.bf16", u16, u16, u16);
    BINARY("set.ne.bf16.bf16", u16, u16, u16);
    BINARY("set.lt.bf16.bf16", u16, u16, u16);
    BINARY("set.le.bf16.bf16", u16, u16, u16);
    BINARY("set.gt.bf16.bf16", u16, u16, u16);
    BINARY("set.ge.bf16.bf16", u16, u16, u16);
    BINARY("set.equ.bf16.bf16", u16, u16, u16);
    BINARY("set.neu.bf16.bf16", u16, u16, u16);
    BINARY("set.ltu.bf16.bf16", u16, u16, u16);
    BINARY("set.leu.bf16.bf16", u16, u16, u16);
    BINARY("set.gtu.bf16.bf16", u16, u16, u16);
    BINARY("set.geu.bf16.bf16", u16, u16, u16);
    BINARY("set.num.bf16.bf16", u16, u16, u16);
    BINARY("set.nan.bf16.bf16", u16, u16, u16);
    BINARY("set.eq.bf16x2.bf16x2", u32, u32, u32);
    BINARY("set.ne.bf16x2.bf16x2", u32, u32, u32);
    BINARY("set.lt.bf16x2.bf16x2", u32, u32, u32);
    BINARY("set.le.bf16x2.bf16x2", u32, u32, u32);
    BINARY("set.gt.bf16x2.bf16x2", u32, u32, u32);
    BINARY("set.ge.bf16x2.bf16x2", u32, u32, u32);
    BINARY("set.equ.bf16x2.bf16x2", u32, u32, u32);
    BINARY("set.neu.bf16x2.bf16x2", u32, u32, u32);
    BINARY("set.ltu.bf16x2.bf16x2", u32, u32, u32);
    BINARY("set.leu.bf16x2.bf16x2", u32, u32, u32);
    BINARY("set.gtu.bf16x2.bf16x2", u32, u32, u32);
    BINARY("set.geu.bf16x2.bf16x2", u32, u32, u32);
    BINARY("set.num.bf16x2.bf16x2", u32, u32, u32);
    BINARY("set.nan.bf16x2.bf16x2", u32, u32, u32);
    BINARY("set.ge.u32.bf16x2", u32, u32, u32);
    BINARY("set.ge.s32.bf16x2", u32, u32, u32);
    BINARY("set.nan.u32.bf16x2", u32, u32, u32);
    BINARY("set.nan.s32.bf16x2", u32, u32, u32);
}
