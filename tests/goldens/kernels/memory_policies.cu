// Cache policies as operands, and a line whose contents are given up before it is written anew.

typedef unsigned int u32;

extern "C" __global__ void memory_policies(const u32* in, u32* out, u32* scratch) {
    const u32 i = threadIdx.x;
    unsigned long long policy;
    u32 x, y;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 0.5;" : "=l"(policy));
    asm volatile("ld.global.L2::cache_hint.u32 %0, [%1], %2;" : "=r"(x) : "l"(in + i), "l"(policy));
    asm volatile("ld.global.nc.L1::evict_last.L2::cache_hint.u32 %0, [%1], %2;"
                 : "=r"(y)
                 : "l"(in + 32 + i), "l"(policy));
    asm volatile("st.global.L2::cache_hint.u32 [%0], %1, %2;" ::"l"(out + i), "r"(x + y),
                 "l"(policy)
                 : "memory");
    if (i == 0) asm volatile("discard.global.L2 [%0], 128;" ::"l"(scratch) : "memory");
    __syncwarp();
    scratch[i] = x ^ y;
    asm volatile("red.global.add.L2::cache_hint.u32 [%0], %1, %2;" ::"l"(scratch + i), "r"(i),
                 "l"(policy)
                 : "memory");
}
