// Each thread goes round as often as it has elements, with a barrier inside, and reads what others
// made.
__global__ void rounds(const int* length, int* out) {
    __shared__ int tile[64];
    int i = threadIdx.x;
    tile[i] = 0;
#ifdef FIXED
    for (int j = 0; j < 3; ++j) {
        if (j < length[i]) tile[i] += 1;
#else
    for (int j = 0; j < length[i]; ++j) {
        tile[i] += 1;
#endif
        __syncthreads();  // FAULT: barrier
    }
    __syncthreads();  // OTHER
    out[i] = tile[63 - i];
}
