// wgmma of bf16: A from shared memory and from registers, negated operands, N of 8 and 24.

#include "wgmma.cuh"

extern "C" __global__ void wgmma_bf16(const u32* tile, const u32* c, const u32* a, void* wide,
                                      void* small) {
    __shared__ alignas(1024) u32 shared[2048 / 4 + 768 / 4];
    fill(shared, tile, sizeof shared / 4);
    Operands given = operands(shared, c, a, wide);
    MULTIPLY(12, "m64n24k16.f32.bf16.bf16", FROM_SHARED, ", 1, 1, 0, 0");
    MULTIPLY(12, "m64n24k16.f32.bf16.bf16", FROM_REGISTERS, ", 1, 1, 0");
    MULTIPLY(12, "m64n24k16.f32.bf16.bf16", FROM_SHARED, ", -1, 1, 0, 0");
    MULTIPLY(12, "m64n24k16.f32.bf16.bf16", FROM_REGISTERS, ", 1, -1, 0");
    given.adds = 0;
    MULTIPLY(12, "m64n24k16.f32.bf16.bf16", FROM_SHARED, ", -1, -1, 0, 0");
    given = operands(shared, c, a, small);
    MULTIPLY(4, "m64n8k16.f32.bf16.bf16", FROM_SHARED, ", 1, 1, 0, 0");
    MULTIPLY(4, "m64n8k16.f32.bf16.bf16", FROM_REGISTERS, ", 1, 1, 0");
}
