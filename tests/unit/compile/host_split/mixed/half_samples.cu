// Samples of a kernel guide: half2 vectors, a launcher template, a specialization, a bind macro.
#include <cuda_fp16.h>
#include <torch/extension.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>

#define WARP_SIZE 32
#define HALF2(value) (reinterpret_cast<half2*>(&(value))[0])
#define STRINGIFY(str) #str
#define TORCH_BINDING(func) m.def(STRINGIFY(func), &func, STRINGIFY(func));

#define TORCH_BINDING_ADD(name, th_type, element_type, per_thread)                               \
    void name(torch::Tensor a, torch::Tensor b, torch::Tensor c) {                               \
        const int n = a.numel();                                                                 \
        name##_kernel<<<(n + 255) / 256, 256 / (per_thread)>>>(                                   \
            reinterpret_cast<element_type*>(a.data_ptr()),                                       \
            reinterpret_cast<element_type*>(b.data_ptr()),                                       \
            reinterpret_cast<element_type*>(c.data_ptr()), n);                                   \
    }

__global__ void add_f16_kernel(half* a, half* b, half* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = __hadd(a[i], b[i]);
}

__global__ void add_f16x2_kernel(half* a, half* b, half* c, int n) {
    int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 1 < n) {
        half2 x = HALF2(a[i]), y = HALF2(b[i]);
        HALF2(c[i]) = __hadd2(x, y);
    } else if (i < n) {
        c[i] = __hadd(a[i], b[i]);
    }
}

template <int kWarpSize = WARP_SIZE>
__device__ __forceinline__ float warp_reduce_sum(float val) {
#pragma unroll
    for (int mask = kWarpSize >> 1; mask >= 1; mask >>= 1) {
        val += __shfl_xor_sync(0xffffffff, val, mask);
    }
    return val;
}

__global__ void dot_f16_kernel(half* a, half* b, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float product = i < n ? __half2float(a[i]) * __half2float(b[i]) : 0.f;
    product = warp_reduce_sum(product);
    if (threadIdx.x % WARP_SIZE == 0) atomicAdd(y, product);
}

TORCH_BINDING_ADD(add_f16, torch::kHalf, half, 1)
TORCH_BINDING_ADD(add_f16x2, torch::kHalf, half, 2)

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    TORCH_BINDING(add_f16)
    TORCH_BINDING(add_f16x2)
}
