// alloca in a function that runs again and again, with other sizes in each thread, and in the
// kernel; stacksave and stackrestore around a loop's.

__device__ __forceinline__ void* stacked(long long bytes) {
    void* at;
    asm volatile("{ .reg .u64 own; alloca.u64 own, %1; cvta.local.u64 %0, own; }"
                 : "=l"(at)
                 : "l"(bytes));
    return at;
}

__device__ __noinline__ int mixed(const int* x, int n) {
    int* own = static_cast<int*>(stacked(n * sizeof(int)));
    for (int i = 0; i < n; ++i) own[i] = x[i];
    int sum = 0;
    for (int i = n - 1; i >= 0; --i) sum = sum * 3 + own[i] * (i + 1);
    return sum;
}

extern "C" __global__ void control_stack(const int* x, int* out, int n) {
    int t = threadIdx.x, sum = 0;
    for (int round = 0; round < 8; ++round) sum += mixed(x + t + round, n + t % 5);
    short* kept = static_cast<short*>(stacked(n * sizeof(short)));
    for (int i = 0; i < n; ++i) kept[i] = static_cast<short>(sum + i);
    for (int round = 0; round < 4; ++round) {
        unsigned long long top, own;
        asm volatile("stacksave.u64 %0;" : "=l"(top));
        asm volatile("alloca.u64 %0, %1, 16;" : "=l"(own) : "l"(64ll + 8 * t));
        asm volatile("st.local.u32 [%0], %1;" ::"l"(own), "r"(sum) : "memory");
        asm volatile("st.local.u32 [%0 + 60], %1;" ::"l"(own), "r"(t) : "memory");
        int first, last;
        asm volatile("ld.local.u32 %0, [%1];" : "=r"(first) : "l"(own) : "memory");
        asm volatile("ld.local.u32 %0, [%1 + 60];" : "=r"(last) : "l"(own) : "memory");
        sum = first * 5 + last + static_cast<int>(own % 16);
        asm volatile("stackrestore.u64 %0;" ::"l"(top) : "memory");
    }
    out[t] = sum + kept[n / 2];
}
