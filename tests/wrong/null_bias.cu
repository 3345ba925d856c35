// Adds a bias, which is optional; nobody asks whether it is there.
__global__ void add_bias(const float* x, const float* bias, float* out) {
    int i = threadIdx.x;
#ifdef FIXED
    out[i] = x[i] + (bias ? bias[i] : 0.0f);
#else
    float b = bias[i];  // FAULT: null-pointer
    out[i] = x[i] + b;
#endif
}
