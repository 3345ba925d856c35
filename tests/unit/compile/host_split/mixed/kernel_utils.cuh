// What the operators of an extension share: half of it for kernels, half for their launchers.
#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <torch/library.h>

#include <stdexcept>
#include <string>

#define CUDA_CHECK(expr) check_status((expr), __FILE__, __LINE__)
#define DEVICE_INLINE __device__ __forceinline__
#define GRID_STRIDE_LOOP(i, n) \
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < (n); i += (int64_t)blockDim.x * gridDim.x)

namespace op_utils {

inline void check_status(cudaError_t status, const char* file, int line) {
    if (status != cudaSuccess)
        throw std::runtime_error(std::string(file) + ":" + std::to_string(line));
}

struct LaunchConfig {
    dim3 grid, block;
    cudaStream_t stream;
    std::string label;
};

inline LaunchConfig config_1d(int64_t n, int threads = 256) {
    return {dim3((n + threads - 1) / threads), dim3(threads), at::cuda::getCurrentCUDAStream(), "1d"};
}

template <typename T>
DEVICE_INLINE T leaky(T x, T slope) {
    return x > T(0) ? x : x * slope;
}

enum class Activation : int { kNone = 0, kLeaky = 1 };

}  // namespace op_utils
