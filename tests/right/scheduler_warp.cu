// A warp takes tiles off a counter, and hands them to two others through a slot of two.
__global__ void run(const int* x, int* out, int* next, int tiles) {
    __shared__ int slot[2];
    int t = threadIdx.x;
    if (t < 32) {
        for (int s = 0;; s ^= 1) {
            asm volatile("bar.sync %0, 96;" ::"r"(3 + s) : "memory");
            int tile = 0;
            if (t == 0) {
                tile = atomicAdd(next, 1);
                slot[s] = tile;
            }
            tile = __shfl_sync(~0u, tile, 0);
            __syncwarp();
            asm volatile("bar.arrive %0, 96;" ::"r"(1 + s) : "memory");
            if (tile >= tiles) break;
        }
    } else {
        int c = t - 32;
        asm volatile("bar.arrive 3, 96;" ::: "memory");
        for (int s = 0;; s ^= 1) {
            asm volatile("bar.sync %0, 96;" ::"r"(1 + s) : "memory");
            int tile = slot[s];
            if (tile >= tiles) break;
            asm volatile("bar.arrive %0, 96;" ::"r"(3 + (s ^ 1)) : "memory");
            out[tile * 64 + c] = x[tile * 64 + 63 - c];
        }
    }
}
