// A tree reduction whose steps do not wait for each other.
__global__ void sum(const int* x, int* out) {
    __shared__ int part[256];
    int i = threadIdx.x;
    part[i] = x[i];
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (i < half) {
            part[i] += part[i + half];  // FAULT: race, OTHER
        }
#ifdef FIXED
        __syncthreads();
#endif
    }
    if (i == 0) *out = part[0];
}
