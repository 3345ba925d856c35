// One warp produces and another consumes: bar.arrive for who goes on, bar.sync for who waits.
__global__ void pipe(const int* x, int* out, int rounds) {
    __shared__ int slot[32];
    int lane = threadIdx.x % 32;
    bool is_producer = threadIdx.x < 32;
    for (int r = 0; r < rounds; ++r) {
        if (is_producer) {
            if (r > 0) asm volatile("bar.sync 2, 64;" ::: "memory");  // the slot is free
            slot[lane] = x[r * 32 + lane] + r;
            asm volatile("bar.arrive 1, 64;" ::: "memory");  // the slot is full
        } else {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            out[r * 32 + lane] = slot[31 - lane];
            if (r + 1 < rounds) asm volatile("bar.arrive 2, 64;" ::: "memory");
        }
    }
}
