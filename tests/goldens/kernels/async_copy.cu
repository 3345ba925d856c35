// cp.async of 4, 8 and 16 bytes in groups, with a shorter source whose rest is zeros.

typedef unsigned int u32;

extern "C" __global__ void async_copy(const u32* in, u32* out) {
    __shared__ __align__(16) u32 tiles[4][256];
    const u32 i = threadIdx.x;
    const u32 at = (u32)__cvta_generic_to_shared(&tiles[0][4 * i]);
    for (u32 k = 0; k < 16; ++k) tiles[k / 4][4 * i + k % 4] = 77;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(in + 4 * i) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at + 1024), "l"(in + i)
                 : "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at + 1032), "l"(in + 2 * i)
                 : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(at + 2048), "l"(in + 4 * i),
                 "r"(i % 17)
                 : "memory");
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at + 3072), "l"(in + 4 * i),
                 "r"(4 * (i % 5))
                 : "memory");
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    for (u32 k = 0; k < 4; ++k) out[k * 64 + i] = tiles[0][(k * 64 + i + 9) % 256];
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    for (u32 k = 4; k < 8; ++k) out[k * 64 + i] = tiles[1][(k * 64 + i + 5) % 256];
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (u32 k = 8; k < 16; ++k) out[k * 64 + i] = tiles[k / 4][(k * 64 + i + 1) % 256];
}
