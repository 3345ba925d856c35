// Points a copy of a tensor map at another tensor; the acquire of maps alone does not publish that.
#include <dotcu/tma.cuh>

__global__ void other(const float* y, unsigned long long* place, float* out,
                      const __grid_constant__ CUtensorMap x) {
    __shared__ alignas(128) float tile[8][32];
    __shared__ dotcu::mbarrier arrived;
    int t = threadIdx.x;
    if (t == 0) arrived.init(1);
    if (t < 16) place[t] = reinterpret_cast<const unsigned long long*>(&x)[t];
    __syncwarp();
    const CUtensorMap& map = *reinterpret_cast<CUtensorMap*>(place);
    if (t == 0) {
#define REPLACE "tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;"
        auto at = __cvta_generic_to_global(place);
        asm volatile(REPLACE ::"l"(at), "l"(y) : "memory");  // OTHER
#ifdef FIXED
        asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
#endif
        asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(&map));
        arrived.arrive_expect(sizeof(tile));
        dotcu::tma_load(tile, map, arrived, 0, 0);  // FAULT: proxy-fence
    }
    arrived.wait(0);
    out[t] = tile[0][t] - tile[7][t];
}
