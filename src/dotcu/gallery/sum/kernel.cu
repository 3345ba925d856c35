// sum: *total += x[0] + x[1] + ... + x[n - 1].
//
//     x: n contiguous elements; total: one element, zero before the launch
//
// Idea: four stages, each with the fastest means that its threads share. A thread adds up every
// element that is a whole number of grids after its first, in a register. A warp adds up its 32
// sums by shuffles, from register to register. A block adds up the sums of its warps through
// shared memory. The blocks, which share nothing but global memory, add theirs to *total by
// atomics: one for each block of a grid that is only as large as the GPU can hold at once.
//
// Sum is the type that adds within a block: float for the half types, 64 bits for integers. Total
// is the type of the total: double for all floating-point types, since an atomic addition to a
// float in global memory takes numbers below the smallest normal one for zero. Blocks finish in
// any order, so the last bits of a floating-point total can differ from one launch to the next.
//
// Cost: n additions and n elements moved: bound by memory.
// Source: Justin Luitjens, "Faster Parallel Reductions on Kepler", 2014; PTX ISA, atom.

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffff;

// The sum over a warp, in its lane 0. All lanes take part.
template <typename Sum>
__device__ Sum sum_over_warp(Sum value) {
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        value += __shfl_down_sync(kAllLanes, value, distance);
    }
    return value;
}

// The sum over a block of whole warps, in its thread 0. All threads take part, once in a kernel.
template <typename Sum>
__device__ Sum sum_over_block(Sum value) {
    __shared__ Sum of_warp[kWarp];
    const int lane = threadIdx.x % kWarp;
    const int warp = threadIdx.x / kWarp;

    value = sum_over_warp(value);
    if (lane == 0) of_warp[warp] = value;
    __syncthreads();
    if (warp != 0) return 0;
    const int warps = blockDim.x / kWarp;
    return sum_over_warp(lane < warps ? of_warp[lane] : Sum(0));
}

__device__ void atomic_add(double* total, double value) { atomicAdd(total, value); }

// CUDA has this atomic for unsigned numbers only; in two's complement they add up the same.
__device__ void atomic_add(long long* total, long long value) {
    atomicAdd(reinterpret_cast<unsigned long long*>(total), static_cast<unsigned long long>(value));
}

template <typename T, typename Sum, typename Total>
__global__ void sum(const T* x, Total* total, long long n) {
    const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;

    Sum value = 0;
#pragma unroll 4
    for (long long i = first; i < n; i += threads) value += static_cast<Sum>(x[i]);

    value = sum_over_block(value);
    if (threadIdx.x == 0) atomic_add(total, static_cast<Total>(value));
}
