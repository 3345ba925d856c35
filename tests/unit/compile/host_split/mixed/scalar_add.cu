#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>

__global__ void scalar_add_kernel(
    const float* x,
    float* y,
    float value,
    int size
) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < size) {
        y[idx] = x[idx] + value;
    }
}

void scalar_add_launcher(
    torch::Tensor x,
    torch::Tensor y,
    float value
) {
    int size = x.numel();
    int threads = 256;
    int blocks = (size + threads - 1) / threads;

    scalar_add_kernel<<<blocks, threads>>>(
        x.data_ptr<float>(),
        y.data_ptr<float>(),
        value,
        size
    );
}
