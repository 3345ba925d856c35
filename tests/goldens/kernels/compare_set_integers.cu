// set of integers: all ones, or 1.0, where a comparison holds.

#include "spellings.cuh"

SPELLED(compare_set_integers) {
    OPERANDS;
    BINARY("set.eq.u32.u16", u32, u16, u16);
    BINARY("set.ne.u32.u16", u32, u16, u16);
    BINARY("set.eq.s32.u16", u32, u16, u16);
    BINARY("set.ne.s32.u16", u32, u16, u16);
    BINARY("set.eq.f32.u16", u32, u16, u16);
    BINARY("set.ne.f32.u16", u32, u16, u16);
    BINARY("set.ne.u32.u32", u32, u32, u32);
    BINARY("set.lt.u32.u32", u32, u32, u32);
    BINARY("set.ne.s32.u32", u32, u32, u32);
    BINARY("set.lt.s32.u32", u32, u32, u32);
    BINARY("set.ne.f32.u32", u32, u32, u32);
    BINARY("set.lt.f32.u32", u32, u32, u32);
    BINARY("set.lt.u32.u64", u32, u64, u64);
    BINARY("set.le.u32.u64", u32, u64, u64);
    BINARY("set.lt.s32.u64", u32, u64, u64);
    BINARY("set.le.s32.u64", u32, u64, u64);
    BINARY("set.lt.f32.u64", u32, u64, u64);
    BINARY("set.le.f32.u64", u32, u64, u64);
    BINARY("set.le.u32.s16", u32, u16, u16);
    BINARY("set.gt.u32.s16", u32, u16, u16);
    BINARY("set.le.s32.s16", u32, u16, u16);
    BINARY("set.gt.s32.s16", u32, u16, u16);
    BINARY("set.le.f32.s16", u32, u16, u16);
    BINARY("set.gt.f32.s16", u32, u16, u16);
    BINARY("set.gt.u32.s32", u32, u32, u32);
    BINARY("set.ge.u32.s32", u32, u32, u32);
    BINARY("set.gt.s32.s32", u32, u32, u32);
    BINARY("set.ge.s32.s32", u32, u32, u32);
    BINARY("set.gt.f32.s32", u32, u32, u32);
    BINARY("set.ge.f32.s32", u32, u32, u32);
    BINARY("set.ge.u32.s64", u32, u64, u64);
    BINARY("set.eq.u32.s64", u32, u64, u64);
    BINARY("set.ge.s32.s64", u32, u64, u64);
    BINARY("set.eq.s32.s64", u32, u64, u64);
    BINARY("set.ge.f32.s64", u32, u64, u64);
    BINARY("set.eq.f32.s64", u32, u64, u64);
    BINARY("set.lo.u32.u16", u32, u16, u16);
    BINARY("set.ls.u32.u16", u32, u16, u16);
    BINARY("set.hi.u32.u16", u32, u16, u16);
    BINARY("set.hs.u32.u16", u32, u16, u16);
    BINARY("set.lo.u32.u32", u32, u32, u32);
    BINARY("set.ls.u32.u32", u32, u32, u32);
    BINARY("set.hi.u32.u32", u32, u32, u32);
    BINARY("set.hs.u32.u32", u32, u32, u32);
    BINARY("set.lo.u32.u64", u32, u64, u64);
    BINARY("set.ls.u32.u64", u32, u64, u64);
    BINARY("set.hi.u32.u64", u32, u64, u64);
    BINARY("set.hs.u32.u64", u32, u64, u64);
    BINARY("set.eq.u32.b16", u32, u16, u16);
    BINARY("set.eq.u32.b32", u32, u32, u32);
    BINARY("set.eq.u32.b64", u32, u64, u64);
    BY_BIT("set.lt.and.u32.s32", u32, u32);
    BY_BIT("set.lt.or.u32.s32", u32, u32);
    BY_BIT("set.lt.xor.u32.s32", u32, u32);
}
