// setp of f16.

#include "spellings.cuh"

SPELLED(compare_f16) {
    OPERANDS;
    COMPARE("setp.eq.f16", u16);
    COMPARE("setp.ne.f16", u16);
    COMPARE("setp.lt.f16", u16);
    COMPARE("setp.le.f16", u16);
    COMPARE("setp.gt.f16", u16);
    COMPARE("setp.ge.f16", u16);
    COMPARE("setp.equ.f16", u16);
    COMPARE("setp.neu.f16", u16);
    COMPARE("setp.ltu.f16", u16);
    COMPARE("setp.leu.f16", u16);
    COMPARE("setp.gtu.f16", u16);
    COMPARE("setp.geu.f16", u16);
    COMPARE("setp.num.f16", u16);
    COMPARE("setp.nan.f16", u16);
    COMPARE("setp.eq.ftz.f16", u16);
    COMPARE("setp.ne.ftz.f16", u16);
    COMPARE("setp.lt.ftz.f16", u16);
    COMPARE("setp.le.ftz.f16", u16);
    COMPARE("setp.gt.ftz.f16", u16);
    COMPARE("setp.ge.ftz.f16", u16);
    COMPARE("setp.equ.ftz.f16", u16);
    COMPARE("setp.neu.ftz.f16", u16);
    COMPARE("setp.ltu.ftz.f16", u16);
    COMPARE("setp.leu.ftz.f16", u16);
    COMPARE("setp.gtu.ftz.f16", u16);
    COMPARE("setp.geu.ftz.f16", u16);
    COMPARE("setp.num.ftz.f16", u16);
    COMPARE("setp.nan.ftz.f16", u16);
}
