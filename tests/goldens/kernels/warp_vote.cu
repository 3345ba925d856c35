// vote.sync, match.sync and redux.sync over whole warps, and over parts of them that diverge.

#define PREDICATE(mode)                                                        \
    do {                                                                       \
        unsigned r;                                                            \
        asm volatile("{.reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync." mode \
                     ".pred q, p, %2;"                                         \
                     " selp.u32 %0, 1, 0, q;}"                                 \
                     : "=r"(r)                                                 \
                     : "r"(x & 1), "r"(mask));                                 \
        out[row++ * blockDim.x + threadIdx.x] = r;                             \
    } while (0)

#define REDUCE(spelling)                                                                   \
    do {                                                                                   \
        unsigned r;                                                                        \
        asm volatile("redux.sync." spelling " %0, %1, %2;" : "=r"(r) : "r"(x), "r"(mask)); \
        out[row++ * blockDim.x + threadIdx.x] = r;                                         \
    } while (0)

__device__ __forceinline__ unsigned collect(unsigned x, unsigned mask, unsigned* out,
                                            unsigned row) {
    PREDICATE("all");
    PREDICATE("any");
    PREDICATE("uni");
    out[row++ * blockDim.x + threadIdx.x] = __ballot_sync(mask, x & 1);
    out[row++ * blockDim.x + threadIdx.x] = __match_any_sync(mask, x & 7);
    out[row++ * blockDim.x + threadIdx.x] =
        __match_any_sync(mask, (unsigned long long)(x & 3) << 40);
    int same;
    out[row++ * blockDim.x + threadIdx.x] = __match_all_sync(mask, x >> 31, &same);
    out[row++ * blockDim.x + threadIdx.x] = same;
    out[row++ * blockDim.x + threadIdx.x] = __match_all_sync(mask, 5ull << 33, &same) + same;
    REDUCE("add.u32");
    REDUCE("add.s32");
    REDUCE("min.u32");
    REDUCE("max.u32");
    REDUCE("min.s32");
    REDUCE("max.s32");
    REDUCE("and.b32");
    REDUCE("or.b32");
    REDUCE("xor.b32");
    return row;
}

extern "C" __global__ void warp_vote(const unsigned* in, unsigned* out) {
    const unsigned x = in[threadIdx.x];
    const unsigned row = collect(x, 0xffffffff, out, 0);
    if (threadIdx.x & 4) {
        collect(x | 1, 0xf0f0f0f0, out, row);
    } else {
        collect(x >> 1, 0x0f0f0f0f, out, row);
    }
}
