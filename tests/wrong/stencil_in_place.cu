// Smooths in place: neighbours read what a thread has or has not replaced yet.
__global__ void smooth(float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float left = i > 0 ? x[i - 1] : 0.0f;       // OTHER
    float right = i + 1 < n ? x[i + 1] : 0.0f;  // OTHER
#ifdef FIXED
    out[i] = 0.5f * (left + right);
#else
    x[i] = 0.5f * (left + right);  // FAULT: race
#endif
}
