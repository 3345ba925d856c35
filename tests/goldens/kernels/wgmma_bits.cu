// wgmma of single bits: how many are set in both.

#include "wgmma.cuh"

extern "C" __global__ void wgmma_bits(const u32* tile, const u32* c, const u32* a, void* out) {
    __shared__ alignas(1024) u32 shared[2048 / 4 + 768 / 4];
    fill(shared, tile, sizeof shared / 4);
    Operands given = operands(shared, c, a, out);
    MULTIPLY(12, "m64n24k256.s32.b1.b1.and.popc", FROM_SHARED, "");
    MULTIPLY(12, "m64n24k256.s32.b1.b1.and.popc", FROM_REGISTERS, "");
    given.adds = 0;
    MULTIPLY(12, "m64n24k256.s32.b1.b1.and.popc", FROM_SHARED, "");
}
