// The same look-back with flag and value in one 64-bit word, so that no fence is needed at all.
__device__ unsigned long long load(unsigned long long* at) {
    unsigned long long word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
    return word;
}

__global__ void prefix_of_blocks(const int* x, int* out, int* ticket, unsigned long long* state) {
    if (threadIdx.x != 0) return;
    int block = atomicAdd(ticket, 1);
    unsigned long long before = 0;
    if (block > 0) {
        unsigned long long word;
        while (((word = load(&state[block - 1])) >> 32) == 0) {
        }
        before = word & 0xffffffff;
    }
    unsigned long long sum = before + x[block];
    unsigned long long word = 1ull << 32 | sum;
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(&state[block]), "l"(word) : "memory");
    out[block] = static_cast<int>(sum);
}
