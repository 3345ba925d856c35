// setp of bf16.

#include "spellings.cuh"

SPELLED(compare_bf16) {
    OPERANDS;
    COMPARE("setp.eq.bf16", u16);
    COMPARE("setp.ne.bf16", u16);
    COMPARE("setp.lt.bf16", u16);
    COMPARE("setp.le.bf16", u16);
    COMPARE("setp.gt.bf16", u16);
    COMPARE("setp.ge.bf16", u16);
    COMPARE("setp.equ.bf16", u16);
    COMPARE("setp.neu.bf16", u16);
    COMPARE("setp.ltu.bf16", u16);
    COMPARE("setp.leu.bf16", u16);
    COMPARE("setp.gtu.bf16", u16);
    COMPARE("setp.geu.bf16", u16);
    COMPARE("setp.num.bf16", u16);
    COMPARE("setp.nan.bf16", u16);
}
