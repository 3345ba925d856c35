// selp and slct: one of two values.

#include "spellings.cuh"

SPELLED(compare_select) {
    OPERANDS;
    BY_BIT("selp.u16", u16, u16);
    BY_BIT("selp.u32", u32, u32);
    BY_BIT("selp.u64", u64, u64);
    BY_BIT("selp.s16", u16, u16);
    BY_BIT("selp.s32", u32, u32);
    BY_BIT("selp.s64", u64, u64);
    BY_BIT("selp.b16", u16, u16);
    BY_BIT("selp.b32", u32, u32);
    BY_BIT("selp.b64", u64, u64);
    BY_BIT("selp.f32", u32, u32);
    BY_BIT("selp.f64", u64, u64);
    TERNARY("slct.u16.s32", u16, u16, u16, u32);
    TERNARY("slct.u16.f32", u16, u16, u16, u32);
    TERNARY("slct.ftz.u16.f32", u16, u16, u16, u32);
    TERNARY("slct.u32.s32", u32, u32, u32, u32);
    TERNARY("slct.u32.f32", u32, u32, u32, u32);
    TERNARY("slct.ftz.u32.f32", u32, u32, u32, u32);
    TERNARY("slct.u64.s32", u64, u64, u64, u32);
    TERNARY("slct.u64.f32", u64, u64, u64, u32);
    TERNARY("slct.ftz.u64.f32", u64, u64, u64, u32);
    TERNARY("slct.s16.s32", u16, u16, u16, u32);
    TERNARY("slct.s16.f32", u16, u16, u16, u32);
    TERNARY("slct.ftz.s16.f32", u16, u16, u16, u32);
    TERNARY("slct.s32.s32", u32, u32, u32, u32);
    TERNARY("slct.s32.f32", u32, u32, u32, u32);
    TERNARY("slct.ftz.s32.f32", u32, u32, u32, u32);
    TERNARY("slct.s64.s32", u64, u64, u64, u32);
    TERNARY("slct.s64.f32", u64, u64, u64, u32);
    TERNARY("slct.ftz.s64.f32", u64, u64, u64, u32);
    TERNARY("slct.b16.s32", u16, u16, u16, u32);
    TERNARY("slct.b16.f32", u16, u16, u16, u32);
    TERNARY("slct.ftz.b16.f32", u16, u16, u16, u32);
    TERNARY("slct.b32.s32", u32, u32, u32, u32);
    TERNARY("slct.b32.f32", u32, u32, u32, u32);
    TERNARY("slct.ftz.b32.f32", u32, u32, u32, u32);
    TERNARY("slct.b64.s32", u64, u64, u64, u32);
    TERNARY("slct.b64.f32", u64, u64, u64, u32);
    TERNARY("slct.ftz.b64.f32", u64, u64, u64, u32);
    TERNARY("slct.f32.s32", u32, u32, u32, u32);
    TERNARY("slct.f32.f32", u32, u32, u32, u32);
    TERNARY("slct.ftz.f32.f32", u32, u32, u32, u32);
    TERNARY("slct.f64.s32", u64, u64, u64, u32);
    TERNARY("slct.f64.f32", u64, u64, u64, u32);
    TERNARY("slct.ftz.f64.f32", u64, u64, u64, u32);
}
