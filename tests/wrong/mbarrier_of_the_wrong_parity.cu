// Waits for the mbarrier's second phase, which nobody completes, in place of its first.
// An asm statement of several lines has the line of its inputs.
__global__ void phase(const int* x, int* out) {
    __shared__ alignas(8) unsigned long long barrier;
    __shared__ int tile[32];
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
    int i = threadIdx.x;
    if (i == 0) asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(at) : "memory");
    __syncthreads();
    tile[i] = x[i];
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(at) : "memory");
    __syncthreads();
#ifdef FIXED
    unsigned parity = 0;
#else
    unsigned parity = 1;
#endif
    unsigned done = 0;
    while (!done) {
        asm volatile(
            "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2;"
            " selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(at), "r"(parity)  // FAULT: deadlock
            : "memory");
    }
    out[i] = tile[31 - i];
}
