// Lanes of a warp hand on values in shared memory, without __syncwarp().
__global__ void rotate(const int* x, int* out) {
    __shared__ int slot[64];
    int i = threadIdx.x;
    int next = i / 32 * 32 + (i + 1) % 32;
    slot[i] = x[i];  // OTHER
#ifdef FIXED
    __syncwarp();
#endif
    out[i] = slot[next];  // FAULT: race
}
