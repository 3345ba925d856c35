// Two warps leave; the other two meet at a barrier that counts just them.
__global__ void exchange(const int* x, int* out) {
    __shared__ int tile[64];
    int i = threadIdx.x;
    if (i >= 64) {
        out[i] = x[i];
        return;
    }
    tile[i] = x[i];
    asm volatile("bar.sync 1, 64;" ::: "memory");
    out[i] = tile[63 - i];
}
