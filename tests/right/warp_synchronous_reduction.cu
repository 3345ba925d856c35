// A warp reduces in shared memory, with __syncwarp() between what is read and what is written.
__global__ void sum(const int* x, int* out) {
    __shared__ int part[128];
    int i = threadIdx.x;
    int lane = i % 32;
    int* own = part + i / 32 * 32;
    int total = x[i];
    own[lane] = total;
    for (int step = 16; step > 0; step /= 2) {
        __syncwarp();
        if (lane < step) total += own[lane + step];
        __syncwarp();
        own[lane] = total;
    }
    if (lane == 0) out[i / 32] = total;
}
