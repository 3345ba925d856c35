// wgmma of 256 columns: 128 accumulators a thread in f32 and s32, 64 in f16.

#include "wgmma.cuh"

extern "C" __global__ void wgmma_widest(const u32* tile, const u32* zeros, const u32* a, void* wide,
                                        void* narrow) {
    __shared__ alignas(1024) u32 shared[2048 / 4 + 8192 / 4];
    fill(shared, tile, sizeof shared / 4);
    Operands given = operands(shared, zeros, a, wide);
    MULTIPLY(128, "m64n256k16.f32.f16.f16", FROM_SHARED, ", 1, 1, 0, 0");
    MULTIPLY(128, "m64n256k32.s32.s8.u8", FROM_REGISTERS, "");
    given = operands(shared, zeros, a, narrow);
    MULTIPLY(64, "m64n256k16.f16.f16.f16", FROM_REGISTERS, ", 1, 1, 0");
}
