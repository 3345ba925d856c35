// Kernels of dotcu::tensor parameters, for NVRTC and nvcc alike.

#include "dotcu/tensor.cuh"

// The layout that the host fills in.
using Vector = dotcu::tensor<double, 1>;
using Cube = dotcu::tensor<const short, 3>;
static_assert(sizeof(Vector) == 24 && alignof(Vector) == 8);
static_assert(sizeof(Cube) == 8 + 2 * 3 * 8);
static_assert(__is_trivially_copyable(Cube));

// out(i, j, k) = x(i, j, k), one block for each i, one thread for each k.
template <typename T>
__global__ void copy(dotcu::tensor<const T, 3> x, dotcu::tensor<T, 3> out) {
    for (int j = 0; j < x.size(1); ++j)
        out(blockIdx.x, j, threadIdx.x) = x(blockIdx.x, j, threadIdx.x);
}

__global__ void describe(dotcu::tensor<const float, 2> x, long long* out) {
    out[0] = x.size(0);
    out[1] = x.size(1);
    out[2] = x.stride(0);
    out[3] = x.stride(1);
    out[4] = x.numel();
}

__global__ void write_at(dotcu::tensor<float, 2> x, long long i, long long j) { x(i, j) = 1; }

__global__ void read_at(dotcu::tensor<const float, 2> x, int i, unsigned char j, float* out) {
    *out = x(i, j);
}
