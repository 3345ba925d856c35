// abs, neg and copysign of f32, and testp.

#include "spellings.cuh"

SPELLED(float_sign) {
    OPERANDS;
    UNARY("abs.f32", u32, u32);
    UNARY("abs.ftz.f32", u32, u32);
    UNARY("neg.f32", u32, u32);
    UNARY("neg.ftz.f32", u32, u32);
    BINARY("copysign.f32", u32, u32, u32);
    TEST("testp.finite.f32", u32);
    TEST("testp.infinite.f32", u32);
    TEST("testp.number.f32", u32);
    TEST("testp.notanumber.f32", u32);
    TEST("testp.normal.f32", u32);
    TEST("testp.subnormal.f32", u32);
}
