// bar.red: barriers that count, and that ask whether all or any agree; barrier.cta in its
// spellings.

extern "C" __global__ void barrier_reduce(const int* in, int* out) {
    __shared__ int line[96];
    const int i = threadIdx.x, x = in[i];
    int* row = out + i;
    *row = __syncthreads_count(x & 1), row += blockDim.x;
    *row = __syncthreads_and(x > -1000), row += blockDim.x;
    *row = __syncthreads_or(x > 900), row += blockDim.x;
    unsigned r;
    asm volatile("{.reg .pred p; setp.lt.s32 p, %1, 0; barrier.cta.red.popc.aligned.u32 %0, 5, p;}"
                 : "=r"(r)
                 : "r"(x));
    *row = r, row += blockDim.x;
    line[i] = x;
    asm volatile("barrier.cta.sync 6;" ::: "memory");
    *row = line[95 - i], row += blockDim.x;
    __syncthreads();
    if (i < 64) {  // two warps of three
        asm volatile("barrier.sync.aligned 7, 64;" ::: "memory");
        line[i] = i;
        asm volatile("bar.sync 7, 64;" ::: "memory");
        *row = line[i ^ 33];
    } else {
        *row = 0;
    }
}
