// ldmatrix, stmatrix and movmatrix: which lane holds which element.

typedef unsigned int u32;

extern "C" __global__ void matrix_ldmatrix(const u32* in, u32* out) {
    __shared__ __align__(16) u32 tile[128], stored[128];
    const u32 i = threadIdx.x;
    for (u32 k = i; k < 128; k += 32) tile[k] = in[k];
    __syncwarp();
    const u32 row = (u32)__cvta_generic_to_shared(&tile[4 * i]);
    const u32 place = (u32)__cvta_generic_to_shared(&stored[4 * (i ^ 5)]);
    u32 d[4];
    u32* to = out + i;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(d[0])
                 : "r"(row)
                 : "memory");
    *to = d[0], to += 32;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(d[0])
                 : "r"(row)
                 : "memory");
    *to = d[0], to += 32;
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(row)
                 : "memory");
    for (int k = 0; k < 2; ++k, to += 32) *to = d[k];
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(row)
                 : "memory");
    for (int k = 0; k < 2; ++k, to += 32) *to = d[k];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(row)
                 : "memory");
    for (int k = 0; k < 4; ++k, to += 32) *to = d[k];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(row)
                 : "memory");
    for (int k = 0; k < 4; ++k, to += 32) *to = d[k];
    u32 moved;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(moved) : "r"(d[1]));
    *to = moved, to += 32;
}
