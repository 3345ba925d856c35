// Each warp leaves the loop when its elements are done, and the others go on meeting at the
// barrier.
__global__ void rounds(const int* length, int* out) {
    __shared__ int tile[64];
    int i = threadIdx.x;
    tile[i] = 0;
    for (int j = 0; j < length[i]; ++j) {
        tile[i] += 1;
        __syncthreads();
    }
    out[i] = tile[i];
}
