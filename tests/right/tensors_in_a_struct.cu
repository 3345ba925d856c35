// Updates many tensors in one launch: a struct by value has their addresses, their sizes and what
// each block does.
struct Tensors {
    void* addresses[2][3];
    int sizes[3];
    unsigned char block_to_tensor[8];
    int block_to_chunk[8];
};

__global__ void descend(int chunk, Tensors tensors, float rate) {
    int which = tensors.block_to_tensor[blockIdx.x];
    int start = tensors.block_to_chunk[blockIdx.x] * chunk;
    const float* gradient = static_cast<const float*>(tensors.addresses[0][which]);
    float* weight = static_cast<float*>(tensors.addresses[1][which]);
    for (int i = start + threadIdx.x; i < min(start + chunk, tensors.sizes[which]);
         i += blockDim.x) {
        weight[i] -= rate * gradient[i];
    }
}
