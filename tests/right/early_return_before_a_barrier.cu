// Threads without an element return, and the barrier waits for those that have not (sm_70 and
// later).
__global__ void reverse(const int* x, int* out, int n) {
    __shared__ int tile[64];
    int i = threadIdx.x;
    if (i >= n) return;
    tile[i] = x[i];
    __syncthreads();
    out[i] = tile[n - 1 - i];
}
