// setp of f64.

#include "spellings.cuh"

SPELLED(compare_f64) {
    OPERANDS;
    COMPARE("setp.eq.f64", u64);
    COMPARE("setp.ne.f64", u64);
    COMPARE("setp.lt.f64", u64);
    COMPARE("setp.le.f64", u64);
    COMPARE("setp.gt.f64", u64);
    COMPARE("setp.ge.f64", u64);
    COMPARE("setp.equ.f64", u64);
    COMPARE("setp.neu.f64", u64);
    COMPARE("setp.ltu.f64", u64);
    COMPARE("setp.leu.f64", u64);
    COMPARE("setp.gtu.f64", u64);
    COMPARE("setp.geu.f64", u64);
    COMPARE("setp.num.f64", u64);
    COMPARE("setp.nan.f64", u64);
}
