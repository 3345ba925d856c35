// One piece of dynamic shared memory as doubles, floats and bytes.
__global__ void carve(const float* x, double* out) {
    extern __shared__ double memory[];
    int n = blockDim.x;
    double* wide = memory;
    float* narrow = reinterpret_cast<float*>(wide + n);
    unsigned char* odd = reinterpret_cast<unsigned char*>(narrow + n);
    int i = threadIdx.x;
    narrow[i] = x[i];
    odd[i] = i % 3;
    wide[i] = 0.5 * x[i];
    __syncthreads();
    int j = n - 1 - i;
    out[i] = wide[j] + narrow[j] + odd[j];
}
