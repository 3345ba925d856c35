// cp.reduce.async.bulk: every operation and type, on 1024 bytes each.

typedef unsigned int u32;

#define REDUCE(op)                                                            \
    at = (u32)__cvta_generic_to_shared(tile);                                 \
    if (i == 0) {                                                             \
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group." op \
                     " [%0], [%1], 1024;" ::"l"(out),                         \
                     "r"(at)                                                  \
                     : "memory");                                             \
    }                                                                         \
    out += 256;

extern "C" __global__ void bulk_reduce(const u32* in, u32* out) {
    __shared__ alignas(128) u32 tile[256];
    const u32 i = threadIdx.x;
    u32 at;
    for (u32 j = i; j < 256; j += blockDim.x) tile[j] = in[j];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    REDUCE("add.u32")
    REDUCE("add.s32")
    REDUCE("add.u64")
    REDUCE("add.f32")
    REDUCE("add.f64")
    REDUCE("add.noftz.f16")
    REDUCE("add.noftz.bf16")
    REDUCE("min.u32")
    REDUCE("min.s32")
    REDUCE("min.u64")
    REDUCE("min.s64")
    REDUCE("min.f16")
    REDUCE("min.bf16")
    REDUCE("max.u32")
    REDUCE("max.s32")
    REDUCE("max.u64")
    REDUCE("max.s64")
    REDUCE("max.f16")
    REDUCE("max.bf16")
    REDUCE("inc.u32")
    REDUCE("dec.u32")
    REDUCE("and.b32")
    REDUCE("and.b64")
    REDUCE("or.b32")
    REDUCE("or.b64")
    REDUCE("xor.b32")
    REDUCE("xor.b64")
    if (i == 0) {
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
