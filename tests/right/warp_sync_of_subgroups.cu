// The halves of a warp go different ways, and each exchanges and waits among itself.
__global__ void halves(const int* x, int* out) {
    __shared__ int slot[32];
    int lane = threadIdx.x;
    slot[lane] = x[lane];
    if (lane < 16) {
        __syncwarp(0x0000ffff);
        int value = slot[15 - lane];
        value += __shfl_xor_sync(0x0000ffff, value, 8, 16);
        out[lane] = value;
    } else {
        __syncwarp(0xffff0000);
        int value = 2 * slot[16 + (lane + 1) % 16];
        __syncwarp(0xffff0000);
        slot[lane] = value;
        __syncwarp(0xffff0000);
        out[lane] = slot[47 - lane];
    }
}
