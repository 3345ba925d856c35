// wgmma of integers of 8 bits in all pairs, with wrapping and with clamped sums.

#include "wgmma.cuh"

#define BOTH(a, b)                                                        \
    MULTIPLY(12, "m64n24k32.s32." a "." b, FROM_SHARED, "");              \
    MULTIPLY(12, "m64n24k32.s32." a "." b, FROM_REGISTERS, "");           \
    MULTIPLY(12, "m64n24k32.s32." a "." b ".satfinite", FROM_SHARED, ""); \
    MULTIPLY(12, "m64n24k32.s32." a "." b ".satfinite", FROM_REGISTERS, "");

extern "C" __global__ void wgmma_int8(const u32* tile, const u32* c, const u32* a, void* out) {
    __shared__ alignas(1024) u32 shared[2048 / 4 + 768 / 4];
    fill(shared, tile, sizeof shared / 4);
    Operands given = operands(shared, c, a, out);
    BOTH("s8", "s8");
    BOTH("s8", "u8");
    BOTH("u8", "s8");
    BOTH("u8", "u8");
    given.adds = 0;
    MULTIPLY(12, "m64n24k32.s32.s8.u8", FROM_SHARED, "");
}
