// shfl.sync in its four modes, for every width of a segment, with the predicate of what was in
// range.

#define SHUFFLE(mode, by, control)                        \
    do {                                                  \
        unsigned value, inside;                           \
        asm volatile("{.reg .pred p; shfl.sync." mode     \
                     ".b32 %0|p, %2, %3, %4, 0xffffffff;" \
                     " selp.u32 %1, 1, 0, p;}"            \
                     : "=r"(value), "=r"(inside)          \
                     : "r"(x), "r"(by), "r"(control));    \
        out[row++ * blockDim.x + threadIdx.x] = value;    \
        out[row++ * blockDim.x + threadIdx.x] = inside;   \
    } while (0)

extern "C" __global__ void warp_shuffle(const unsigned* in, unsigned* out) {
    const unsigned x = in[threadIdx.x], any = in[64 + threadIdx.x];
    unsigned row = 0;
#pragma unroll 1
    for (int width = 1; width <= 32; width *= 2) {
        const unsigned segment = (32 - width) << 8;
        SHUFFLE("up", 3, segment);
        SHUFFLE("down", 5, segment | 0x1f);
        SHUFFLE("bfly", 6, segment | 0x1f);
        SHUFFLE("idx", any, segment | 0x1f);
        SHUFFLE("up", any, segment);
        SHUFFLE("down", any, segment | 0x1f);
        SHUFFLE("bfly", any, segment | 0x13);  // a clamp in the middle
    }
}
