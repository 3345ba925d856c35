// stmatrix: registers of a warp to 8x8 matrices in shared memory.

typedef unsigned int u32;

#define KEEP()                                                        \
    do {                                                              \
        __syncwarp();                                                 \
        for (u32 k = 0; k < 4; ++k, to += 32) *to = tile[32 * k + i]; \
        __syncwarp();                                                 \
    } while (0)

extern "C" __global__ void matrix_stmatrix(const u32* in, u32* out) {
    __shared__ __align__(16) u32 tile[128];
    const u32 i = threadIdx.x;
    u32 d[4], *to = out + i;
    for (u32 k = 0; k < 4; ++k) d[k] = in[32 * k + i], tile[32 * k + i] = k;
    __syncwarp();
    const u32 row = (u32)__cvta_generic_to_shared(&tile[4 * i]);
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(row), "r"(d[0])
                 : "memory");
    KEEP();
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(row), "r"(d[0])
                 : "memory");
    KEEP();
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(d[0]),
                 "r"(d[1])
                 : "memory");
    KEEP();
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row),
                 "r"(d[2]), "r"(d[3])
                 : "memory");
    KEEP();
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(d[0]), "r"(d[1]), "r"(d[2]), "r"(d[3])
                 : "memory");
    KEEP();
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
        "r"(d[0]), "r"(d[1]), "r"(d[2]), "r"(d[3])
        : "memory");
    KEEP();
}
