// All threads that find a negative number say so, in one cell and with one value.
__global__ void any_negative(const float* x, int* out) {
    __shared__ int found;
    int i = threadIdx.x;
    if (i == 0) found = 0;
    __syncthreads();
    if (x[blockIdx.x * 64 + i] < 0) found = 1;
    __syncthreads();
    out[blockIdx.x * 64 + i] = found;
}
