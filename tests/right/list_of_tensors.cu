// Concatenates tensors of different lengths, one block for each, through an array of pointers.
__global__ void concatenate(const float* const* parts, const int* starts, float* out) {
    int part = blockIdx.x;
    int length = starts[part + 1] - starts[part];
    for (int i = threadIdx.x; i < length; i += blockDim.x) {
        out[starts[part] + i] = parts[part][i];
    }
}
