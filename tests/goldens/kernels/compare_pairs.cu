// setp of pairs of halves: a predicate for each half.

#include "spellings.cuh"

SPELLED(compare_pairs) {
    OPERANDS;
    COMPARE_TWICE("setp.eq.f16x2", u32);
    COMPARE_TWICE("setp.ne.f16x2", u32);
    COMPARE_TWICE("setp.lt.f16x2", u32);
    COMPARE_TWICE("setp.le.f16x2", u32);
    COMPARE_TWICE("setp.gt.f16x2", u32);
    COMPARE_TWICE("setp.ge.f16x2", u32);
    COMPARE_TWICE("setp.equ.f16x2", u32);
    COMPARE_TWICE("setp.neu.f16x2", u32);
    COMPARE_TWICE("setp.ltu.f16x2", u32);
    COMPARE_TWICE("setp.leu.f16x2", u32);
    COMPARE_TWICE("setp.gtu.f16x2", u32);
    COMPARE_TWICE("setp.geu.f16x2", u32);
    COMPARE_TWICE("setp.num.f16x2", u32);
    COMPARE_TWICE("setp.nan.f16x2", u32);
    COMPARE_TWICE("setp.eq.ftz.f16x2", u32);
    COMPARE_TWICE("setp.ne.ftz.f16x2", u32);
    COMPARE_TWICE("setp.lt.ftz.f16x2", u32);
    COMPARE_TWICE("setp.le.ftz.f16x2", u32);
    COMPARE_TWICE("setp.gt.ftz.f16x2", u32);
    COMPARE_TWICE("setp.ge.ftz.f16x2", u32);
    COMPARE_TWICE("setp.equ.ftz.f16x2", u32);
    COMPARE_TWICE("setp.neu.ftz.f16x2", u32);
    COMPARE_TWICE("setp.ltu.ftz.f16x2", u32);
    COMPARE_TWICE("setp.leu.ftz.f16x2", u32);
    COMPARE_TWICE("setp.gtu.ftz.f16x2", u32);
    COMPARE_TWICE("setp.geu.ftz.f16x2", u32);
    COMPARE_TWICE("setp.num.ftz.f16x2", u32);
    COMPARE_TWICE("setp.nan.ftz.f16x2", u32);
    COMPARE_TWICE("setp.eq.bf16x2", u32);
    COMPARE_TWICE("setp.ne.bf16x2", u32);
    COMPARE_TWICE("setp.lt.bf16x2", u32);
    COMPARE_TWICE("setp.le.bf16x2", u32);
    COMPARE_TWICE("setp.gt.bf16x2", u32);
    COMPARE_TWICE("setp.ge.bf16x2", u32);
    COMPARE_TWICE("setp.equ.bf16x2", u32);
    COMPARE_TWICE("setp.neu.bf16x2", u32);
    COMPARE_TWICE("setp.ltu.bf16x2", u32);
    COMPARE_TWICE("setp.leu.bf16x2", u32);
    COMPARE_TWICE("setp.gtu.bf16x2", u32);
    COMPARE_TWICE("setp.geu.bf16x2", u32);
    COMPARE_TWICE("setp.num.bf16x2", u32);
    COMPARE_TWICE("setp.nan.bf16x2", u32);
}
