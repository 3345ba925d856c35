// Barriers that tell how many threads, and whether all or any, hold something.
__global__ void votes(const int* x, int* out) {
    int i = threadIdx.x;
    int small = __syncthreads_count(x[i] < 10);
    int all = __syncthreads_and(x[i] < 100);
    int any = __syncthreads_or(x[i] == 7);
    out[i] = small + 1000 * (all != 0) + 10000 * (any != 0);
}
