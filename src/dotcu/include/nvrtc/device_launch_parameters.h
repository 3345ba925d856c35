// <device_launch_parameters.h> for NVRTC, which declares the device side of the CUDA
// runtime (threadIdx, dim3, float4, atomics, ...) before the first line of a file. The toolkit's
// own header would add nothing but a chain of headers to read.
#pragma once
