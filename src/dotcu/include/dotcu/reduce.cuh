// dotcu/reduce.cuh: reductions over a warp or a block.
//
//     __shared__ float of_warp[threads / 32];
//     const float most = dotcu::reduce_block<threads>(x, of_warp, dotcu::maximum());
//
// Every thread must call it, and every thread gets the same bits: the order of the operations is
// fixed. `Op` is any associative and commutative function of two values, such as dotcu::plus or
// dotcu::maximum.
#pragma once

namespace dotcu {

constexpr int warp_size = 32;
constexpr unsigned all_lanes = 0xffffffff;

struct plus {
    template <typename T>
    __device__ T operator()(T a, T b) const {
        return a + b;
    }
};

// The larger value, or NaN if one is NaN, as in torch.
struct maximum {
    __device__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

// A sum and its rounding errors, which are NaN if the sum is infinite. Source: Donald Knuth, "The
// Art of Computer Programming" 2, 4.2.2: the two-sum.
template <typename Sum>
struct running_sum {
    Sum value = 0, lost = 0;
    __device__ void add(Sum x) {
        const Sum next = value + x, added = next - value;
        lost += (value - (next - added)) + (x - added);
        value = next;
    }
    __device__ Sum total() const { return lost - lost == 0 ? value + lost : value; }
};

// Over groups of `lanes` neighbouring lanes, a power of two: 32 for the whole warp.
template <int lanes = warp_size, typename T, typename Op>
__device__ T reduce_warp(T value, Op op) {
    static_assert(lanes >= 1 && lanes <= warp_size && (lanes & (lanes - 1)) == 0, "1, 2, 4 to 32");
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
        value = op(value, __shfl_xor_sync(all_lanes, value, distance));
    }
    return value;
}

// Over a block of `threads` threads: whole warps, a power of two of them. `of_warp` is shared
// memory of the block, one value for each warp. It can be reused after the next __syncthreads(), so
// two consecutive reductions need one each.
template <int threads, typename T, typename Op>
__device__ T reduce_block(T value, T* of_warp, Op op) {
    constexpr int warps = threads / warp_size;
    static_assert(warps >= 1 && warps <= warp_size && (warps & (warps - 1)) == 0,
                  "1, 2 to 32 warps");
    value = reduce_warp(value, op);
    if constexpr (warps > 1) {
        if (threadIdx.x % warp_size == 0) of_warp[threadIdx.x / warp_size] = value;
        __syncthreads();
        value = reduce_warp<warps>(of_warp[threadIdx.x % warps], op);
    }
    return value;
}

}  // namespace dotcu
