// A reduction under a predicate whose mask names lane 0, where the predicate does not hold.
__global__ void guarded(int* out) {
    int lane = threadIdx.x % 32, sum = -1;
#ifdef FIXED
    unsigned mask = 0xfffffffe;
#else
    unsigned mask = 0xffffffff;
#endif
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; @p redux.sync.add.s32 %0, %1, %2; }"
                 : "+r"(sum)
                 : "r"(lane), "r"(mask));  // FAULT: barrier
    out[threadIdx.x] = sum;
}
