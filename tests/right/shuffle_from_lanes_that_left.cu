// A sum along the warp whose last lanes have left: what they would have given is dropped.
__global__ void sums(const int* x, int* out, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    int sum = x[i];
    for (int step = 16; step > 0; step /= 2) {
        int other = __shfl_down_sync((1u << n) - 1, sum, step);
        if (i + step < n) sum += other;
    }
    out[i] = sum;
}
