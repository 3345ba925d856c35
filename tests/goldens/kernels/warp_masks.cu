// activemask, elect.sync, bar.warp.sync, and the special registers that name a lane.

#define SPECIAL(name)                                      \
    do {                                                   \
        unsigned r;                                        \
        asm volatile("mov.u32 %0, %%" name ";" : "=r"(r)); \
        out[row++ * blockDim.x + i] = r;                   \
    } while (0)

extern "C" __global__ void warp_masks(unsigned* out) {
    __shared__ unsigned exchanged[64];
    const unsigned i = threadIdx.x;
    unsigned row = 0;
    SPECIAL("laneid");
    SPECIAL("lanemask_eq");
    SPECIAL("lanemask_lt");
    SPECIAL("lanemask_le");
    SPECIAL("lanemask_gt");
    SPECIAL("lanemask_ge");
    out[row++ * blockDim.x + i] = __activemask();
    unsigned leader, elected;
    asm volatile("{.reg .pred p; elect.sync %0|p, 0xffffffff; selp.u32 %1, 1, 0, p;}"
                 : "=r"(leader), "=r"(elected));
    out[row++ * blockDim.x + i] = leader;
    out[row++ * blockDim.x + i] = elected;
    exchanged[i] = i * i;
    __syncwarp();
    out[row++ * blockDim.x + i] = exchanged[i ^ 17];
    __syncwarp();
    if (i % 32 < 10) {
        exchanged[i] = i + 1000;
        __syncwarp(0x3ff);
        out[row * blockDim.x + i] = exchanged[i - i % 32 + (i + 1) % 32 % 10];
    } else {
        out[row * blockDim.x + i] = __popc(__activemask() & 0xfffffc00);
    }
}
