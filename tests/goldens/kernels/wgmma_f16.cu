// wgmma of f16 that adds up in f32 and in f16: A from shared memory and from registers, negated
// operands, without the old accumulators.

#include "wgmma.cuh"

extern "C" __global__ void wgmma_f16(const u32* tile, const u32* c, const u32* halves, const u32* a,
                                     void* wide, void* narrow) {
    __shared__ alignas(1024) u32 shared[2048 / 4 + 768 / 4];
    fill(shared, tile, sizeof shared / 4);
    Operands given = operands(shared, c, a, wide);
    MULTIPLY(12, "m64n24k16.f32.f16.f16", FROM_SHARED, ", 1, 1, 0, 0");
    MULTIPLY(12, "m64n24k16.f32.f16.f16", FROM_REGISTERS, ", 1, 1, 0");
    MULTIPLY(12, "m64n24k16.f32.f16.f16", FROM_SHARED, ", -1, 1, 0, 0");
    MULTIPLY(12, "m64n24k16.f32.f16.f16", FROM_REGISTERS, ", -1, -1, 0");
    given.adds = 0;
    MULTIPLY(12, "m64n24k16.f32.f16.f16", FROM_SHARED, ", 1, -1, 0, 0");
    given = operands(shared, halves, a, narrow);
    MULTIPLY(6, "m64n24k16.f16.f16.f16", FROM_SHARED, ", 1, 1, 0, 0");
    MULTIPLY(6, "m64n24k16.f16.f16.f16", FROM_REGISTERS, ", 1, 1, 0");
    MULTIPLY(6, "m64n24k16.f16.f16.f16", FROM_SHARED, ", -1, 1, 0, 0");
    given.adds = 0;
    MULTIPLY(6, "m64n24k16.f16.f16.f16", FROM_REGISTERS, ", 1, -1, 0");
}
