// lg2.

#include "spellings.cuh"

SPELLED(approx_logarithm) {
    OPERANDS;
    UNARY("lg2.approx.f32", u32, u32);
    UNARY("lg2.approx.ftz.f32", u32, u32);
}
