// <cuda.h> for NVRTC, which refuses the toolkit's own (it declares host functions): of the
// driver API, the version and the types that a kernel takes as parameters.
#pragma once

#ifndef CUDA_VERSION
#define CUDA_VERSION (__CUDACC_VER_MAJOR__ * 1000 + __CUDACC_VER_MINOR__ * 10)
#endif

typedef unsigned long long CUdeviceptr, CUtexObject, CUsurfObject;

// A tensor map for TMA, made by cuTensorMapEncodeTiled on the host. The header of CUDA 12 aligns it
// to 64 bytes, that of CUDA 13 to 128.
typedef struct CUtensorMap_st {
    alignas(128) unsigned long long opaque[16];
} CUtensorMap;
