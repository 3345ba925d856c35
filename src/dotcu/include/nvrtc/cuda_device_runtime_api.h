// <cuda_device_runtime_api.h> for NVRTC, where the toolkit's own gives a warning: of it, the two
// functions of programmatic dependent launch. They do nothing before sm_90, where a kernel never
// starts before the one that it depends on has ended.
#ifndef __CUDA_DEVICE_RUNTIME_API_H__
#define __CUDA_DEVICE_RUNTIME_API_H__

// Wait until the kernel before this one has ended and what it wrote can be read.
static inline __device__ void cudaGridDependencySynchronize() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Let the kernel after this one start, once every block has said so or ended.
static inline __device__ void cudaTriggerProgrammaticLaunchCompletion() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif
