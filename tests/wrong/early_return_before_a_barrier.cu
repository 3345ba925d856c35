// Threads without an element return, and never come to the barrier.
__global__ void reverse(const int* x, int* out, int n) {
    __shared__ int tile[64];
    int i = threadIdx.x;
#ifndef FIXED
    if (i >= n) return;
#endif
    if (i < n) tile[i] = x[i];
    __syncthreads();  // FAULT: barrier
    if (i < n) out[i] = tile[n - 1 - i];
}
