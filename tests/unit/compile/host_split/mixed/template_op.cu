// An operator made from a template: fill in the kernel, the launcher and the registration.
#include "kernel_utils.cuh"

#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAException.h>

namespace my_extension {

using at::Tensor;
using op_utils::Activation;

template <typename scalar_t>
__global__ void activation_kernel(const scalar_t* __restrict__ input, scalar_t* __restrict__ output,
                                  scalar_t slope, int mode, int64_t numel) {
    GRID_STRIDE_LOOP(i, numel) {
        const scalar_t x = input[i];
        output[i] = static_cast<Activation>(mode) == Activation::kLeaky ? op_utils::leaky(x, slope) : x;
    }
}

template <typename scalar_t>
__global__ void activation_backward_kernel(const scalar_t* grad, const scalar_t* input, scalar_t* out,
                                           scalar_t slope, int64_t numel) {
    GRID_STRIDE_LOOP(i, numel) { out[i] = input[i] > scalar_t(0) ? grad[i] : grad[i] * slope; }
}

Tensor activation_cuda(const Tensor& input, double slope, int64_t mode) {
    TORCH_CHECK(input.is_cuda(), "input must be on the GPU, and not <<<somewhere else>>>");
    auto output = at::empty_like(input);
    auto config = op_utils::config_1d(input.numel());
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(input.scalar_type(), "activation_cuda", ([&] {
        activation_kernel<scalar_t><<<config.grid, config.block, 0, config.stream>>>(
            input.const_data_ptr<scalar_t>(), output.mutable_data_ptr<scalar_t>(),
            static_cast<scalar_t>(slope), static_cast<int>(mode), input.numel());
    }));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return output;
}

TORCH_LIBRARY_FRAGMENT(my_extension, m) {
    m.def("activation(Tensor input, float slope, int mode) -> Tensor");
}

TORCH_LIBRARY_IMPL(my_extension, CUDA, m) {
    m.impl("activation", &activation_cuda);
}

}  // namespace my_extension
