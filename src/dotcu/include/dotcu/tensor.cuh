// dotcu/tensor.cuh: a tensor as a kernel parameter, with its sizes and strides.
//
//     __global__ void scale(float a, dotcu::tensor<const float, 2> x, dotcu::tensor<float, 2> out)
//     {
//         ...
//         out(i, j) = a * x(i, j);
//     }
//
// Pass any torch tensor of that dtype and rank, contiguous or not. It costs as much as its pointer,
// sizes and strides as separate arguments: 8 + 16 * rank bytes of parameters, and one 64-bit
// multiplication and addition for each index.
//
// The simulator checks every index, and reports one that is out of range with its dimension, even
// if the address is inside the tensor's memory. On a GPU nothing is checked.
#pragma once

#ifdef DOTCU_SIMULATED
// The simulator replaces this call: it records the finding and decides how the thread continues.
extern "C" __device__ void __dotcu_index_error(int dim, long long index, long long size,
                                               const void* data);
#endif

namespace dotcu {

// The host fills in these fields: their order and types are fixed.
template <typename T, int rank>
struct tensor {
    static_assert(rank >= 1, "a tensor without dimensions has one element: pass it as a T*");

    T* data;
    long long sizes[rank];
    long long strides[rank];  // in elements

    __device__ long long size(int dim) const { return sizes[dim]; }
    __device__ long long stride(int dim) const { return strides[dim]; }

    __device__ long long numel() const {
        long long count = 1;
        for (int dim = 0; dim < rank; ++dim) count *= sizes[dim];
        return count;
    }

    // The element at one index per dimension, in the order of the dimensions.
    template <typename... Index>
    __device__ T& operator()(Index... index) const {
        static_assert(sizeof...(Index) == rank, "a tensor takes one index for each dimension");
        const long long at[rank] = {static_cast<long long>(index)...};
        long long offset = 0;
#pragma unroll
        for (int dim = 0; dim < rank; ++dim) {
#ifdef DOTCU_SIMULATED
            if (at[dim] < 0 || at[dim] >= sizes[dim]) {
                __dotcu_index_error(dim, at[dim], sizes[dim], data);
            }
#endif
            offset += at[dim] * strides[dim];
        }
        return data[offset];
    }
};

}  // namespace dotcu
