// The approximate quotients, reciprocals and roots.

#include "spellings.cuh"

SPELLED(approx_reciprocal) {
    OPERANDS;
    BINARY("div.approx.f32", u32, u32, u32);
    BINARY("div.approx.ftz.f32", u32, u32, u32);
    BINARY("div.full.f32", u32, u32, u32);
    BINARY("div.full.ftz.f32", u32, u32, u32);
    UNARY("rcp.approx.f32", u32, u32);
    UNARY("rcp.approx.ftz.f32", u32, u32);
    UNARY("sqrt.approx.f32", u32, u32);
    UNARY("sqrt.approx.ftz.f32", u32, u32);
    UNARY("rsqrt.approx.f32", u32, u32);
    UNARY("rsqrt.approx.ftz.f32", u32, u32);
}
