// Adds up tensors of a list, of which one is shorter than the others.
__global__ void add_up(const float* const* parts, const int* sizes, int count, float* out) {
    int i = threadIdx.x;
    float sum = 0;
    for (int part = 0; part < count; ++part) {
        const float* x = parts[part];
#ifdef FIXED
        if (i >= sizes[part]) continue;
#endif
        sum += x[i];  // FAULT: out-of-bounds
    }
    out[i] = sum;
}
