// Operators for torch.library, by ATen or by the stable ABI.
#ifdef USE_STABLE_ABI
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#else
#include <ATen/Operators.h>
#include <torch/all.h>
#include <torch/library.h>
#endif

#include <cuda.h>
#include <cuda_runtime.h>

#ifdef USE_STABLE_ABI
typedef torch::stable::Tensor AnyTensor;
#else
#include <ATen/cuda/CUDAContext.h>
typedef at::Tensor AnyTensor;
#endif

namespace extension_cpp {

__global__ void muladd_kernel(int numel, const float* a, const float* b, float c, float* result) {
  int idx = blockIdx.x * blockDim.x + threadIdx.x;
  if (idx < numel) result[idx] = a[idx] * b[idx] + c;
}

AnyTensor mymuladd_cuda(const AnyTensor& a, const AnyTensor& b, double c) {
  float* result_ptr = nullptr;
  int numel = a.numel();
#ifdef USE_STABLE_ABI
  void* stream = nullptr;
  muladd_kernel<<<(numel + 255) / 256, 256, 0, static_cast<cudaStream_t>(stream)>>>(
#else
  cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  muladd_kernel<<<(numel + 255) / 256, 256, 0, stream>>>(
#endif
      numel, nullptr, nullptr, c, result_ptr);
  return a;
}

__global__ void add_kernel(int numel, const float* a, const float* b, float* result) {
  int idx = blockIdx.x * blockDim.x + threadIdx.x;
  if (idx < numel) result[idx] = a[idx] + b[idx];
}

#ifdef USE_STABLE_ABI
STABLE_TORCH_LIBRARY_IMPL(extension_cpp, CUDA, m) {
  m.impl("mymuladd", TORCH_BOX(&mymuladd_cuda));
}
#else
TORCH_LIBRARY_IMPL(extension_cpp, CUDA, m) {
  m.impl("mymuladd", &mymuladd_cuda);
}
#endif

}
