// wgmma of f16 and of bytes by any descriptor: which bytes of shared memory the matrices are.
//
// The sums are exact, so that they show the places of all elements. `pairs` holds descriptors of A
// and B, whose addresses count from the start of the tile: `count` with both along K, as many with
// A, with B, and with both along M and N.

#include "wgmma.cuh"

#define EACH(R, spelling, tail)                               \
    for (u32 i = 0; i < count; ++i, pairs += 2) {             \
        given.a = pairs[0] + base, given.b = pairs[1] + base; \
        MULTIPLY(R, spelling, FROM_SHARED, tail);             \
    }
#define TILE                                                     \
    __shared__ alignas(1024) u32 shared[12 * 1024];              \
    fill(shared, tile, sizeof shared / 4);                       \
    const u64 base = (u32)__cvta_generic_to_shared(shared) >> 4; \
    Operands given = operands(shared, c, c, out);                \
    given.adds = 0

extern "C" __global__ void wgmma_layouts(const u32* tile, const u64* pairs, const u32* c, u32 count,
                                         void* out) {
    TILE;
    EACH(12, "m64n24k16.f32.f16.f16", ", 1, 1, 0, 0");
    EACH(12, "m64n24k16.f32.f16.f16", ", 1, 1, 1, 0");
    EACH(12, "m64n24k16.f32.f16.f16", ", 1, 1, 0, 1");
    EACH(12, "m64n24k16.f32.f16.f16", ", 1, 1, 1, 1");
}

extern "C" __global__ void wgmma_layouts_wide(const u32* tile, const u64* pairs, const u32* c,
                                              u32 count, void* out) {
    TILE;
    EACH(68, "m64n136k16.f32.f16.f16", ", 1, 1, 0, 0");
    EACH(68, "m64n136k16.f32.f16.f16", ", 1, 1, 1, 1");
}

extern "C" __global__ void wgmma_layouts_shifted(const u32* tile, const u64* pairs, const u32* c,
                                                 u32 count, void* out) {
    TILE;
    EACH(12, "m64n24k16.f32.f16.f16", ", 1, 1, 0, 0");
    EACH(12, "m64n24k16.f32.f16.f16", ", 1, 1, 1, 1");
}

extern "C" __global__ void wgmma_layouts_bytes(const u32* tile, const u64* pairs, const u32* c,
                                               u32 count, void* out) {
    TILE;
    EACH(12, "m64n24k32.s32.s8.u8", "");
}
