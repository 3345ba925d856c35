// Arithmetic of f64, in every rounding mode; exponents to 2^300.

#include "spellings.cuh"

SPELLED(float_f64) {
    OPERANDS;
    BINARY("add.f64", u64, u64, u64);
    BINARY("add.rn.f64", u64, u64, u64);
    BINARY("add.rz.f64", u64, u64, u64);
    BINARY("add.rm.f64", u64, u64, u64);
    BINARY("add.rp.f64", u64, u64, u64);
    BINARY("sub.f64", u64, u64, u64);
    BINARY("sub.rn.f64", u64, u64, u64);
    BINARY("sub.rz.f64", u64, u64, u64);
    BINARY("sub.rm.f64", u64, u64, u64);
    BINARY("sub.rp.f64", u64, u64, u64);
    BINARY("mul.f64", u64, u64, u64);
    BINARY("mul.rn.f64", u64, u64, u64);
    BINARY("mul.rz.f64", u64, u64, u64);
    BINARY("mul.rm.f64", u64, u64, u64);
    BINARY("mul.rp.f64", u64, u64, u64);
    TERNARY("fma.rn.f64", u64, u64, u64, u64);
    TERNARY("fma.rz.f64", u64, u64, u64, u64);
    TERNARY("fma.rm.f64", u64, u64, u64, u64);
    TERNARY("fma.rp.f64", u64, u64, u64, u64);
    TERNARY("mad.rn.f64", u64, u64, u64, u64);
    TERNARY("mad.rz.f64", u64, u64, u64, u64);
    TERNARY("mad.rm.f64", u64, u64, u64, u64);
    TERNARY("mad.rp.f64", u64, u64, u64, u64);
    BINARY("div.rn.f64", u64, u64, u64);
    BINARY("div.rz.f64", u64, u64, u64);
    BINARY("div.rm.f64", u64, u64, u64);
    BINARY("div.rp.f64", u64, u64, u64);
    UNARY("rcp.rn.f64", u64, u64);
    UNARY("rcp.rz.f64", u64, u64);
    UNARY("rcp.rm.f64", u64, u64);
    UNARY("rcp.rp.f64", u64, u64);
    UNARY("sqrt.rn.f64", u64, u64);
    UNARY("sqrt.rz.f64", u64, u64);
    UNARY("sqrt.rm.f64", u64, u64);
    UNARY("sqrt.rp.f64", u64, u64);
    BINARY("min.f64", u64, u64, u64);
    BINARY("max.f64", u64, u64, u64);
    UNARY("abs.f64", u64, u64);
    UNARY("neg.f64", u64, u64);
    BINARY("copysign.f64", u64, u64, u64);
    TEST("testp.finite.f64", u64);
    TEST("testp.infinite.f64", u64);
    TEST("testp.number.f64", u64);
    TEST("testp.notanumber.f64", u64);
    TEST("testp.normal.f64", u64);
    TEST("testp.subnormal.f64", u64);
    UNARY("rcp.rm.ftz.f64", u64, u64);
    UNARY("rcp.rn.ftz.f64", u64, u64);
    UNARY("rcp.rp.ftz.f64", u64, u64);
    UNARY("rcp.rz.ftz.f64", u64, u64);
}
