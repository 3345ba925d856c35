// and, or, xor, not and cnot, on bits and on predicates.

#include "spellings.cuh"

SPELLED(integer_logic) {
    OPERANDS;
    BINARY("and.b16", u16, u16, u16);
    BINARY("and.b32", u32, u32, u32);
    BINARY("and.b64", u64, u64, u64);
    ON_PREDICATES("and.pred");
    BINARY("or.b16", u16, u16, u16);
    BINARY("or.b32", u32, u32, u32);
    BINARY("or.b64", u64, u64, u64);
    ON_PREDICATES("or.pred");
    BINARY("xor.b16", u16, u16, u16);
    BINARY("xor.b32", u32, u32, u32);
    BINARY("xor.b64", u64, u64, u64);
    ON_PREDICATES("xor.pred");
    UNARY("not.b16", u16, u16);
    UNARY("not.b32", u32, u32);
    UNARY("not.b64", u64, u64);
    NOT_PREDICATE("not.pred");
    UNARY("cnot.b16", u16, u16);
    UNARY("cnot.b32", u32, u32);
    UNARY("cnot.b64", u64, u64);
}
