// setp of f32.

#include "spellings.cuh"

SPELLED(compare_f32) {
    OPERANDS;
    COMPARE("setp.eq.f32", u32);
    COMPARE("setp.ne.f32", u32);
    COMPARE("setp.lt.f32", u32);
    COMPARE("setp.le.f32", u32);
    COMPARE("setp.gt.f32", u32);
    COMPARE("setp.ge.f32", u32);
    COMPARE("setp.equ.f32", u32);
    COMPARE("setp.neu.f32", u32);
    COMPARE("setp.ltu.f32", u32);
    COMPARE("setp.leu.f32", u32);
    COMPARE("setp.gtu.f32", u32);
    COMPARE("setp.geu.f32", u32);
    COMPARE("setp.num.f32", u32);
    COMPARE("setp.nan.f32", u32);
    COMPARE("setp.eq.ftz.f32", u32);
    COMPARE("setp.ne.ftz.f32", u32);
    COMPARE("setp.lt.ftz.f32", u32);
    COMPARE("setp.le.ftz.f32", u32);
    COMPARE("setp.gt.ftz.f32", u32);
    COMPARE("setp.ge.ftz.f32", u32);
    COMPARE("setp.equ.ftz.f32", u32);
    COMPARE("setp.neu.ftz.f32", u32);
    COMPARE("setp.ltu.ftz.f32", u32);
    COMPARE("setp.leu.ftz.f32", u32);
    COMPARE("setp.gtu.ftz.f32", u32);
    COMPARE("setp.geu.ftz.f32", u32);
    COMPARE("setp.num.ftz.f32", u32);
    COMPARE("setp.nan.ftz.f32", u32);
}
