// One piece of shared memory holds floats first, and after a barrier integers.
__global__ void ranks(const float* x, int* out) {
    __shared__ alignas(8) unsigned char bytes[64 * 4];
    int i = threadIdx.x;
    float* values = reinterpret_cast<float*>(bytes);
    values[i] = x[i];
    __syncthreads();
    int rank = 0;
    for (int j = 0; j < 64; ++j) rank += values[j] < values[i];
    __syncthreads();
    int* order = reinterpret_cast<int*>(bytes);
    order[rank] = i;
    __syncthreads();
    out[i] = order[i];
}
