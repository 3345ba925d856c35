// PyTorch's vocabulary for device code, as extensions use it; host code around it.
#include <torch/extension.h>

#include <ATen/AccumulateType.h>
#include <ATen/cuda/Atomic.cuh>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <vector>

template <typename T>
using acc_t = at::acc_type<T, true>;

struct Options : public torch::CustomClassHolder {
    static constexpr int factor = 2;
};

template <typename scalar_t>
struct Scaled {
    at::opmath_type<scalar_t> factor;
    C10_HOST_DEVICE at::opmath_type<scalar_t> of(scalar_t x) const { return factor * x; }
};

template <typename scalar_t>
C10_LAUNCH_BOUNDS_1(128)
__global__ void reduce(const scalar_t* __restrict__ x, scalar_t* out, int n) {
    static_assert(sizeof(acc_t<scalar_t>) >= sizeof(at::opmath_type<scalar_t>), "");
    const Scaled<scalar_t> twice{Options::factor};
    CUDA_KERNEL_LOOP(i, n) {
        CUDA_KERNEL_ASSERT(i < n);
        scalar_t value = static_cast<scalar_t>(twice.of(x[i])) + scalar_t(1);
        value += x[i];
        if (value > 100 || x[i] < 0.f || x[i] == scalar_t(1)) value = -value;
        gpuAtomicAdd(out, value);
        gpuAtomicMax(out + 1, value);
        gpuAtomicMin(out + 2, value);
        atomicAdd(out + 3, scalar_t(1));
        if (i == 0) gpuAtomicMul(out + 4, 3);
    }
}

template <typename scalar_t>
__device__ scalar_t row_sum(const at::TensorAccessor<scalar_t, 1, at::RestrictPtrTraits, int> row) {
    scalar_t sum = 0;
    for (int j = 0; j < row.size(0); ++j) sum += row[j];
    return sum;
}

template <typename scalar_t>
__global__ void row_sums(
    const torch::PackedTensorAccessor32<scalar_t, 3, torch::RestrictPtrTraits> x,
    torch::PackedTensorAccessor64<scalar_t, 2> out) {
    const int b = blockIdx.x, i = threadIdx.x;
    if (i < x.size(1)) out[b][i] = row_sum<scalar_t>(x[b][i]) + scalar_t(x.stride(2));
}

template <typename From, typename To>
__global__ void convert(const From* x, To* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = static_cast<To>(static_cast<float>(x[i]));
}

__global__ void flat(const at::cuda::detail::TensorInfo<float, int> x, float* out, int n) {
    const int i = threadIdx.x;
    if (i < n) out[i] = x.data[at::cuda::detail::IndexToOffset<float, int, -1>::get(i, x)];
}

__global__ void numbers(const at::Half* x, c10::BFloat16* y, at::PhiloxCudaState state,
                        int64_t* out) {
    const __half h = x[0];
    y[0] = static_cast<float>(h) + 0.5f;
    y[1] = std::numeric_limits<at::BFloat16>::lowest();
    y[2] = at::numeric_limits<float>::upper_bound();
    c10::complex<float> z(1, 2);
    z *= z;
    auto [seed, offset] = at::cuda::philox::unpack(state);
    out[0] = z.imag();
    out[1] = seed + offset;
    gpuAtomicAdd(out + 2, at::cuda::ATenCeilDiv(7, 2));
}

std::vector<at::Tensor> reduce_cuda(at::Tensor x) {
    const at::cuda::OptionalCUDAGuard guard(device_of(x));
    TORCH_CHECK(x.is_cuda(), "x must be on a GPU");
    auto out = at::zeros({5}, x.options());
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "reduce", [&] {
        reduce<scalar_t><<<1, 128, 0, at::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), x.numel());
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {out};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("reduce", &reduce_cuda); }
