// <cuda_runtime_api.h> for NVRTC, which declares the device side of the CUDA
// runtime (threadIdx, dim3, float4, atomics, ...) before the first line of a file, but for what is
// included here. The toolkit's own header would add nothing else but a chain of headers to read.
#pragma once
#include <cuda_device_runtime_api.h>
