// rsqrt of f64.

#include "spellings.cuh"

SPELLED(approx_root_f64) {
    OPERANDS;
    UNARY("rsqrt.approx.f64", u64, u64);
}
