// tensormap.replace of a map's rank, box and steps, and what a copy by it then loads.

#include <dotcu/tma.cuh>

typedef unsigned int u32;
typedef unsigned long long u64;

#define REPLACE(field, number, value)                                                   \
    asm volatile("tensormap.replace.tile." field ".shared::cta.b1024.b32 [%0], " number \
                 "%1;" ::"r"(at),                                                       \
                 "r"(value)                                                             \
                 : "memory")

// One warp. `maps` holds a map of 128 bytes for each of 3 steps, whose box goes to a row of `out`.
extern "C" __global__ void tma_replace_box(const u32* in, u32* out, u64* maps,
                                           const __grid_constant__ CUtensorMap map) {
    __shared__ alignas(128) u32 tile[256];
    __shared__ alignas(128) u64 changed[16];
    __shared__ dotcu::mbarrier arrived;
    const u32 i = threadIdx.x, at = dotcu::shared_address(changed);
    if (i == 0) arrived.init(1);
    if (i < 16) changed[i] = reinterpret_cast<const u64*>(&map)[i];
    __syncwarp();
    for (u32 step = 0; step < 3; ++step, maps += 16, out += 256) {
        for (u32 j = i; j < 256; j += 32) tile[j] = 77;
        __syncwarp();
        if (i == 0 && step == 0) {
            REPLACE("box_dim", "0, ", 16);
            REPLACE("box_dim", "1, ", 4);
        }
        if (i == 0 && step == 1) REPLACE("element_stride", "1, ", 2);
        if (i == 0 && step == 2) REPLACE("rank", "", 0);
        __syncwarp();
        asm volatile(
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync."
            "aligned [%0], [%1], 128;" ::"l"(__cvta_generic_to_global(maps)),
            "r"(at)
            : "memory");
        asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(maps)
                     : "memory");
        dotcu::tma_fence();
        __syncwarp();
        if (i == 0) {
            const CUtensorMap& now = *reinterpret_cast<const CUtensorMap*>(maps);
            arrived.arrive_expect(step == 0 ? 256 : step == 1 ? 128 : 64);
            if (step < 2) dotcu::tma_load(tile, now, arrived, 0, 0);
            if (step == 2) dotcu::tma_load(tile, now, arrived, 0);
        }
        arrived.wait(step & 1);
        for (u32 j = i; j < 256; j += 32) out[j] = tile[j];
        __syncwarp();
    }
}
