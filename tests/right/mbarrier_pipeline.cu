// A producer warp and a consumer warp with two stages, each with an mbarrier "full" and one "free".
__device__ void arrive(unsigned at) {
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(at) : "memory");
}

__device__ void wait(unsigned at, unsigned parity) {
    unsigned done = 0;
    while (!done) {
        asm volatile(
            "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2;"
            " selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(at), "r"(parity)
            : "memory");
    }
}

__global__ void pipeline(const int* x, int* out, int rounds) {
    __shared__ alignas(8) unsigned long long barriers[4];
    __shared__ int stage[2][32];
    int lane = threadIdx.x % 32;
    unsigned full = static_cast<unsigned>(__cvta_generic_to_shared(barriers));
    unsigned free = full + 16;
    if (threadIdx.x < 4) {
        unsigned at = full + 8 * threadIdx.x;
        asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(at) : "memory");
    }
    __syncthreads();
    for (int r = 0; r < rounds; ++r) {
        int s = r % 2;
        unsigned parity = r / 2 % 2;
        if (threadIdx.x < 32) {
            wait(free + 8 * s, parity ^ 1);  // the phase before the first one counts as complete
            stage[s][lane] = x[r * 32 + lane];
            arrive(full + 8 * s);
        } else {
            wait(full + 8 * s, parity);
            out[r * 32 + lane] = stage[s][31 - lane];
            arrive(free + 8 * s);
        }
    }
}
