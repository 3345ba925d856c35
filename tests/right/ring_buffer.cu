// Two warps with a ring of 4 rows between them; how far each is stands in shared memory.
__global__ void ring(const int* x, int* out, int rounds) {
    __shared__ int rows[4][32];
    __shared__ volatile int written, taken;
    int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) written = taken = 0;
    __syncthreads();
    for (int r = 0; r < rounds; ++r) {
        if (threadIdx.x < 32) {
            while (r - taken >= 4) {
            }
            __threadfence_block();
            rows[r % 4][lane] = x[r * 32 + lane];
            __threadfence_block();
            __syncwarp();
            if (lane == 0) written = r + 1;
        } else {
            while (written <= r) {
            }
            __threadfence_block();
            out[r * 32 + lane] = 2 * rows[r % 4][31 - lane];
            __threadfence_block();
            __syncwarp();
            if (lane == 0) taken = r + 1;
        }
    }
}
