// Products of 64 x 16 by 16 x 8 of f16, for the kernels here. Macros, so that each use has its
// line.
#pragma once

#include <cuda_fp16.h>
#include <dotcu/tma.cuh>

#define FENCE asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT(pending) asm volatile("wgmma.wait_group.sync.aligned " #pending ";" ::: "memory")
#define PROXY_FENCE asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define MULTIPLY(d, a, b)                                                                          \
    asm volatile(                                                                                  \
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, " \
        "0;"                                                                                       \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                           \
        : "l"(a), "l"(b)                                                                           \
        : "memory")
#define MULTIPLY_REGISTERS(d, a, b)                                            \
    asm volatile(                                                              \
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, " \
        "{%4, %5, %6, %7}, %8, 1, 1, 1, 0;"                                    \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                   \
        : "memory")

// A tile of rows of 16: 8 rows by 16 bytes at a time, two of them side by side.
__device__ inline int place(int row, int k) {
    return row / 8 * 128 + k / 8 * 64 + row % 8 * 8 + k % 8;
}

__device__ inline unsigned long long descriptor(const void* tile, int leading = 128,
                                                int stride = 256, int swizzle = 0) {
    unsigned long long at = dotcu::shared_address(tile);
    return (at & 0x3FFFF) >> 4 | (unsigned long long)(leading >> 4) << 16 |
           (unsigned long long)(stride >> 4) << 32 | (unsigned long long)swizzle << 62;
}

template <int rows>
__device__ void fill(half (&tile)[rows * 16], const half* from) {
    for (int i = threadIdx.x; i < rows * 16; i += blockDim.x) tile[place(i / 16, i % 16)] = from[i];
}
