// Global memory that each block has for itself, ordered by the block's own barrier.
__global__ void reverse_twice(const int* x, int* scratch, int* out) {
    int n = blockDim.x;
    int* own = scratch + blockIdx.x * n;
    int i = threadIdx.x;
    own[i] = x[blockIdx.x * n + i];
    __syncthreads();
    int value = own[n - 1 - i];
    __syncthreads();
    own[(i + 1) % n] = value;
    __syncthreads();
    out[blockIdx.x * n + i] = own[i];
}
