// add, min and max of pairs of 16-bit integers.

#include "spellings.cuh"

SPELLED(integer_packed) {
    OPERANDS;
    BINARY("add.u16x2", u32, u32, u32);
    BINARY("add.s16x2", u32, u32, u32);
    BINARY("min.u16x2", u32, u32, u32);
    BINARY("min.s16x2", u32, u32, u32);
    BINARY("max.u16x2", u32, u32, u32);
    BINARY("max.s16x2", u32, u32, u32);
    BINARY("min.relu.s16x2", u32, u32, u32);
    BINARY("max.relu.s16x2", u32, u32, u32);
}
