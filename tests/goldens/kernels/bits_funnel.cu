// shf: a funnel shift of two words.

#include "spellings.cuh"

SPELLED(bits_funnel) {
    OPERANDS;
    TERNARY("shf.l.clamp.b32", u32, u32, u32, u32);
    TERNARY("shf.l.wrap.b32", u32, u32, u32, u32);
    TERNARY("shf.r.clamp.b32", u32, u32, u32, u32);
    TERNARY("shf.r.wrap.b32", u32, u32, u32, u32);
}
