// The warps that fill and the warps that wait meet at one barrier, each at its own place.
__global__ void reverse(const int* x, int* out) {
    __shared__ int tile[64];
    int i = threadIdx.x;
    if (i < 64) {
        tile[i] = 2 * x[i];
        __syncthreads();
    } else {
        __syncthreads();
        out[i - 64] = tile[127 - i];
    }
}
