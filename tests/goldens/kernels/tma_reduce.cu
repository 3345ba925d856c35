// cp.reduce.async.bulk.tensor: each operation on a tile of its own, of the element type of the map.

#include <dotcu/tma.cuh>

typedef unsigned int u32;

#define REDUCE(number, op)                                                   \
    case number:                                                             \
        asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta." op \
                     ".tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),   \
                     "r"(0), "r"(8 * k), "r"(dotcu::shared_address(tile))    \
                     : "memory");                                            \
        break;

// `out` holds a tile of 8 rows of 128 bytes for each bit of `ops`; each is combined twice.
extern "C" __global__ void tma_reduce(const u32* in, u32* out,
                                      const __grid_constant__ CUtensorMap map, int ops) {
    __shared__ alignas(128) u32 tile[256];
    const u32 i = threadIdx.x;
    for (int round = 0; round < 2; ++round) {
        for (int op = 0, k = 0; op < 8; ++op) {
            if (!(ops >> op & 1)) continue;
            for (u32 j = i; j < 256; j += blockDim.x) tile[j] = in[256 * round + j];
            dotcu::tma_fence();
            __syncthreads();
            if (i == 0) {
                switch (op) {
                    REDUCE(0, "add")
                    REDUCE(1, "min")
                    REDUCE(2, "max")
                    REDUCE(3, "inc")
                    REDUCE(4, "dec")
                    REDUCE(5, "and")
                    REDUCE(6, "or")
                    REDUCE(7, "xor")
                }
                dotcu::tma_commit();
                asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
            }
            __syncthreads();
            ++k;
        }
    }
}
