// dotcu/grid.cuh: a thread's index in the grid, and kernels that overlap on a stream.
//
//     for (long long i = dotcu::thread_of_grid(); i < n; i += dotcu::threads_of_grid()) ...
//
// Overlap: a kernel launched with programmatic=True may start before the previous kernel of the
// stream has ended. wait_for_earlier() waits until that kernel has ended and its writes are
// visible. Every thread that accesses memory of the earlier kernel must call it. Both calls do
// nothing on GPUs before sm_90.
// Source: PTX ISA, griddepcontrol.
#pragma once

namespace dotcu {

// This thread's index among all threads of a one-dimensional grid, and their number.
__device__ inline long long thread_of_grid() {
    return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ inline long long threads_of_grid() {
    return static_cast<long long>(gridDim.x) * blockDim.x;
}

// Allows the next kernel of the stream to start, once every block has called this or has ended. It
// makes no writes visible: the next kernel must call wait_for_earlier().
__device__ inline void launch_later() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the previous kernel of the stream has ended and its writes are visible.
__device__ inline void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace dotcu
