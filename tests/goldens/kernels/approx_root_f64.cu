// rsqrt of f64, and the two approximations of the upper 32 bits alone.

#include "spellings.cuh"

SPELLED(approx_root_f64) {
    OPERANDS;
    UNARY("rsqrt.approx.f64", u64, u64);
    UNARY("rsqrt.approx.ftz.f64", u64, u64);
    UNARY("rcp.approx.ftz.f64", u64, u64);
}
