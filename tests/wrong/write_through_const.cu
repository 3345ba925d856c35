// Normalises its input in place, although it was promised not to be written.
__global__ void halve(const float* x, float* out) {
    int i = threadIdx.x;
    float half = 0.5f * x[i];
#ifndef FIXED
    const_cast<float*>(x)[i] = half;  // FAULT: read-only
#endif
    out[i] = half;
}
