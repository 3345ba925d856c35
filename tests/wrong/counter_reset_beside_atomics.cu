// Thread 0 sets the counter to zero while others add to it already.
__global__ void count_positive(const float* x, int* out) {
    __shared__ int count;
    int i = threadIdx.x;
    if (i == 0) count = 0;  // OTHER
#ifdef FIXED
    __syncthreads();
#endif
    if (x[i] > 0) atomicAdd(&count, 1);  // FAULT: race
    __syncthreads();
    if (i == 0) *out = count;
}
