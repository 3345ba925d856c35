// dotcu/grid.cuh: a thread's place in the grid, and kernels that overlap on a stream.
//
//     for (long long i = dotcu::thread_of_grid(); i < n; i += dotcu::threads_of_grid()) ...
//
// Overlap: a kernel that is launched with programmatic=True starts while the kernel before it on
// the stream still ends, up to its wait_for_earlier(); after that, all that the kernel before has
// written can be read. Every kernel so launched must call it, by every thread that reads or writes
// what the others do. Both calls do nothing on GPUs before sm_90.
// Source: PTX ISA, griddepcontrol.
#pragma once

namespace dotcu {

// This thread's place among all threads of a one-dimensional grid, and how many there are.
__device__ inline long long thread_of_grid() {
    return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ inline long long threads_of_grid() {
    return static_cast<long long>(gridDim.x) * blockDim.x;
}

// The next kernel on the stream may start, once every block has said so or has ended. It says
// nothing of memory: what the next one reads it must wait for.
__device__ inline void launch_later() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Wait until the kernel before on the stream has ended, and its writes can be read.
__device__ inline void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace dotcu
