// `x` and `y` are one tensor: what __restrict__ promises does not hold.
#ifdef FIXED
#define PROMISED
#else
#define PROMISED __restrict__
#endif
__global__ void scaled(const int* PROMISED x, int* PROMISED y, int* PROMISED out) {
    int i = threadIdx.x;
    int mine = x[i];
    __syncthreads();
    y[i] = 2 * mine;  // OTHER
    __syncthreads();
    out[i] = x[63 - i];  // FAULT: race
}
