// div and rcp of f32, in every rounding mode.

#include "spellings.cuh"

SPELLED(float_divide) {
    OPERANDS;
    BINARY("div.rn.f32", u32, u32, u32);
    BINARY("div.rn.ftz.f32", u32, u32, u32);
    BINARY("div.rz.f32", u32, u32, u32);
    BINARY("div.rz.ftz.f32", u32, u32, u32);
    BINARY("div.rm.f32", u32, u32, u32);
    BINARY("div.rm.ftz.f32", u32, u32, u32);
    BINARY("div.rp.f32", u32, u32, u32);
    BINARY("div.rp.ftz.f32", u32, u32, u32);
    UNARY("rcp.rn.f32", u32, u32);
    UNARY("rcp.rn.ftz.f32", u32, u32);
    UNARY("rcp.rz.f32", u32, u32);
    UNARY("rcp.rz.ftz.f32", u32, u32);
    UNARY("rcp.rm.f32", u32, u32);
    UNARY("rcp.rm.ftz.f32", u32, u32);
    UNARY("rcp.rp.f32", u32, u32);
    UNARY("rcp.rp.ftz.f32", u32, u32);
}
