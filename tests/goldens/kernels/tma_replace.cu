// tensormap.replace of each field, in shared and in global memory, and what a copy by the map then
// loads.

#include <dotcu/tma.cuh>

typedef unsigned int u32;
typedef unsigned long long u64;

#define REPLACE(field, type, constraint, value)                             \
    asm volatile("tensormap.replace.tile." field ".shared::cta.b1024." type \
                 " [%0], %1;" ::"r"(at),                                    \
                 constraint(value)                                          \
                 : "memory")
#define REPLACE_AT(field, type, constraint, number, value)                                    \
    asm volatile("tensormap.replace.tile." field ".shared::cta.b1024." type " [%0], " #number \
                 ", %1;" ::"r"(at),                                                           \
                 constraint(value)                                                            \
                 : "memory")

// One warp. `maps` holds a map of 128 bytes for each of 6 steps, whose box goes to a row of `out`.
extern "C" __global__ void tma_replace(const u32* in, u32* out, u64* maps,
                                       const __grid_constant__ CUtensorMap map) {
    __shared__ alignas(128) u32 tile[256];
    __shared__ alignas(128) u64 changed[16];
    __shared__ dotcu::mbarrier arrived;
    const u32 i = threadIdx.x, at = dotcu::shared_address(changed);
    if (i == 0) arrived.init(1);
    if (i < 16) changed[i] = reinterpret_cast<const u64*>(&map)[i];
    __syncwarp();
    for (u32 step = 0; step < 6; ++step, maps += 16, out += 256) {
        for (u32 j = i; j < 256; j += 32) tile[j] = 77;
        __syncwarp();
        if (i == 0 && step == 1) REPLACE("global_address", "b64", "l", in + 256);
        if (i == 0 && step == 2) {
            REPLACE_AT("global_dim", "b32", "r", 0, 24);
            REPLACE_AT("global_dim", "b32", "r", 1, 6);
        }
        if (i == 0 && step == 3) REPLACE_AT("global_stride", "b64", "l", 0, 256ull);
        if (i == 0 && step == 4) {
            asm volatile(
                "tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 3;" ::"r"(at)
                : "memory");
            asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 2;" ::"r"(at)
                         : "memory");
            asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 0;" ::"r"(at)
                         : "memory");
            asm volatile(
                "tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], 0;" ::"r"(at)
                : "memory");
        }
        __syncwarp();
        if (step < 5) {
            asm volatile(
                "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync."
                "aligned [%0], [%1], 128;" ::"l"(__cvta_generic_to_global(maps)),
                "r"(at)
                : "memory");
        } else {
            if (i < 16) maps[i] = changed[i];
            __syncwarp();
            if (i == 0) {
                asm volatile(
                    "tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(
                        __cvta_generic_to_global(maps)),
                    "l"(in)
                    : "memory");
            }
            asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
            __syncwarp();
        }
        asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(maps)
                     : "memory");
        dotcu::tma_fence();
        __syncwarp();
        if (i == 0) {
            const CUtensorMap& now = *reinterpret_cast<const CUtensorMap*>(maps);
            asm volatile("prefetch.tensormap [%0];" ::"l"(&now) : "memory");
            asm volatile(
                "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(&now),
                "r"(0), "r"(0)
                : "memory");
            arrived.arrive_expect(1024);
            dotcu::tma_load(tile, now, arrived, 0, 0);
        }
        arrived.wait(step & 1);
        for (u32 j = i; j < 256; j += 32) out[j] = tile[j];
        __syncwarp();
    }
}
