// A warp fills two buffers and two others use them; each has a barrier for full and one for free.
__device__ void sync(int b) { asm volatile("bar.sync %0, 96;" ::"r"(b) : "memory"); }
__device__ void arrive(int b) { asm volatile("bar.arrive %0, 96;" ::"r"(b) : "memory"); }
__global__ void stream(const int* x, int* out, int rounds) {
    __shared__ int buf[2][64];
    int t = threadIdx.x;
    if (t < 32) {  // producer
        for (int r = 0; r < rounds; ++r) {
            int s = r & 1;
            if (r >= 2) sync(3 + s);
            buf[s][t] = x[r * 64 + t];
            buf[s][t + 32] = x[r * 64 + t + 32];
            __threadfence_block();
            arrive(1 + s);
        }
    } else {
        int c = t - 32;
        for (int r = 0; r < rounds; ++r) {
            int s = r & 1;
            sync(1 + s);
            out[r * 64 + c] = buf[s][63 - c];
            if (r + 2 < rounds) arrive(3 + s);
        }
    }
}
