// Instructions of a warp under a predicate: lanes where it does not hold take no part, and their
// mask omits them.
__global__ void guarded(int* out) {
    int lane = threadIdx.x % 32, sum = -1, all = -1, other = -1, agree = -1;
    unsigned most = 0xfffffffe;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; @p redux.sync.add.s32 %0, %1, %2; }"
                 : "+r"(sum)
                 : "r"(lane), "r"(most));
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; @p vote.sync.ballot.b32 %0, p, %2; }"
                 : "+r"(all)
                 : "r"(lane), "r"(most));
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; @p shfl.sync.idx.b32 %0, %1, 31, 31, %2; }"
                 : "+r"(other)
                 : "r"(lane), "r"(most));
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; @p match.any.sync.b32 %0, 7, %2; }"
                 : "+r"(agree)
                 : "r"(lane), "r"(most));
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p bar.warp.sync %1; }"
                 :
                 : "r"(lane), "r"(most)
                 : "memory");
    out[threadIdx.x] = sum + other + (all == agree);
}
