// Doubles n numbers; the guard lets one thread too many through.
__global__ void twice(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
    if (i < n) {
#else
    if (i <= n) {
#endif
        out[i] = 2 * x[i];  // FAULT: out-of-bounds
    }
}
