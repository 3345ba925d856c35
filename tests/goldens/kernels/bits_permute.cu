// prmt: bytes picked out of two words.

#include "spellings.cuh"

SPELLED(bits_permute) {
    OPERANDS;
    TERNARY("prmt.b32", u32, u32, u32, u32);
    TERNARY("prmt.b32.f4e", u32, u32, u32, u32);
    TERNARY("prmt.b32.b4e", u32, u32, u32, u32);
    TERNARY("prmt.b32.rc8", u32, u32, u32, u32);
    TERNARY("prmt.b32.ecl", u32, u32, u32, u32);
    TERNARY("prmt.b32.ecr", u32, u32, u32, u32);
    TERNARY("prmt.b32.rc16", u32, u32, u32, u32);
}
