// wgmma of tf32, whose words have all the bits of a float: A from shared memory and from registers.

#include "wgmma.cuh"

extern "C" __global__ void wgmma_tf32(const u32* tile, const u32* c, const u32* a, void* wide) {
    __shared__ alignas(1024) u32 shared[2048 / 4 + 768 / 4];
    fill(shared, tile, sizeof shared / 4);
    Operands given = operands(shared, c, a, wide);
    MULTIPLY(12, "m64n24k8.f32.tf32.tf32", FROM_SHARED, ", 1, 1");
    MULTIPLY(12, "m64n24k8.f32.tf32.tf32", FROM_REGISTERS, ", 1, 1");
    MULTIPLY(12, "m64n24k8.f32.tf32.tf32", FROM_SHARED, ", -1, 1");
    MULTIPLY(12, "m64n24k8.f32.tf32.tf32", FROM_REGISTERS, ", 1, -1");
    given.adds = 0;
    MULTIPLY(12, "m64n24k8.f32.tf32.tf32", FROM_SHARED, ", 1, 1");
}
