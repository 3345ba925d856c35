// The kernels that every contender of call_overhead.py runs, small so that the call is what counts.
//
//     add         out[t] = a[t] + b[t]
//     scale_add   out[t] = a[t] + alpha b[t]                    of three arguments
//     weigh       out[t] = x a[t] + y b[t] + z c[t] + ijkl      of ten; i, j, k, l are digits
//
// The digits tell whether all four have arrived, and in that order. `out` may be `a`.

extern "C" __global__ void add(const float* a, const float* b, float* out, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) out[t] = a[t] + b[t];
}

extern "C" __global__ void scale_add(const float* a, const float* b, float alpha, float* out,
                                     int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) out[t] = a[t] + alpha * b[t];
}

extern "C" __global__ void weigh(const float* a, const float* b, const float* c, int i, int j,
                                 int k, int l, float x, float y, float z, float* out, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) out[t] = x * a[t] + y * b[t] + z * c[t] + float(((i * 10 + j) * 10 + k) * 10 + l);
}
