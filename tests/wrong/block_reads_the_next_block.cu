// Each block writes its elements, and reads the first one of the next block's.
__global__ void differences(const int* x, int* square, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    square[i] = x[i] * x[i];  // OTHER
    __syncthreads();
    int next = (i + 1) % n;
#ifdef FIXED
    out[i] = x[next] * x[next] - square[i];
#else
    out[i] = square[next] - square[i];  // FAULT: race
#endif
}
