// wgmma on special values: 16 of them in A's first column, eight of them in B's first row, all else
// zero. A block has one half of B and one addend.

typedef unsigned short u16;
typedef unsigned int u32;

#define MULTIPLY(types, count, names, rest, to)                                           \
    {                                                                                     \
        u32 d[count];                                                                     \
        for (u32& each : d) each = addend;                                                \
        asm volatile(                                                                     \
            "wgmma.fence.sync.aligned;\n"                                                 \
            "wgmma.mma_async.sync.aligned.m64n8k16." types " " names                      \
            ", 1, 1, 1, 0;\n"                                                             \
            "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"          \
            : rest);                                                                      \
        if (i < 32)                                                                       \
            for (int r = 0; r < count; ++r) to[(blockIdx.x * count + r) * 32 + i] = d[r]; \
    }
#define WIDE "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : GIVEN
#define NARROW "+r"(d[0]), "+r"(d[1]) : GIVEN
#define GIVEN "r"(upper), "r"(lower), "r"(0), "l"(matrix) : "memory"

extern "C"
    __global__ void wgmma_special(const u16* values, const u32* addends, int kind, u32* out) {
    __shared__ alignas(128) u16 b[128];
    const int i = threadIdx.x, row = i % 32 / 4;
    const u32 addend = addends[blockIdx.x % 8];
    b[i] = i < 64 && i % 8 == 0 ? values[blockIdx.x / 8 * 8 + i / 8] : 0;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    const u32 upper = i % 4 ? 0 : values[row], lower = i % 4 ? 0 : values[row + 8];
    const auto matrix = (__cvta_generic_to_shared(b) & 0x3FFFF) >> 4 | 8ull << 16 | 8ull << 32;
    if (kind == 0)
        MULTIPLY("f32.f16.f16", 4, "{%0, %1, %2, %3}, {%4, %5, %6, %6}, %7", WIDE, out)
    else if (kind == 1)
        MULTIPLY("f32.bf16.bf16", 4, "{%0, %1, %2, %3}, {%4, %5, %6, %6}, %7", WIDE, out)
    else
        MULTIPLY("f16.f16.f16", 2, "{%0, %1}, {%2, %3, %4, %4}, %5", NARROW, out)
}
