// bfi: a bit field put into another value.

#include "spellings.cuh"

SPELLED(bits_field) {
    OPERANDS;
    TWO_BYTES("bfi.b32", u32);
    TWO_BYTES("bfi.b64", u64);
}
