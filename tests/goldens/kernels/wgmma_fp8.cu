// wgmma of both formats of fp8 in all pairs, that adds up in f32 and in f16.

#include "wgmma.cuh"

#define BOTH(a, b)                                                     \
    given = operands(shared, c, fragment, wide);                       \
    MULTIPLY(12, "m64n24k32.f32." a "." b, FROM_SHARED, ", 1, 1");     \
    MULTIPLY(12, "m64n24k32.f32." a "." b, FROM_REGISTERS, ", -1, 1"); \
    wide = given.out;                                                  \
    given = operands(shared, halves, fragment, narrow);                \
    MULTIPLY(6, "m64n24k32.f16." a "." b, FROM_SHARED, ", 1, 1");      \
    MULTIPLY(6, "m64n24k32.f16." a "." b, FROM_REGISTERS, ", 1, -1");  \
    narrow = given.out;

extern "C" __global__ void wgmma_fp8(const u32* tile, const u32* c, const u32* halves,
                                     const u32* fragment, void* wide, void* narrow) {
    __shared__ alignas(1024) u32 shared[2048 / 4 + 768 / 4];
    fill(shared, tile, sizeof shared / 4);
    Operands given;
    BOTH("e4m3", "e4m3");
    BOTH("e4m3", "e5m2");
    BOTH("e5m2", "e4m3");
    BOTH("e5m2", "e5m2");
}
