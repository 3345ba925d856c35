// <cuda.h> for NVRTC, which refuses the toolkit's own (it declares host functions): of the
// driver API, the type that a kernel takes as a parameter.
#pragma once

// A tensor map for TMA, made by cuTensorMapEncodeTiled on the host. The header of CUDA 12 aligns it
// to 64 bytes, that of CUDA 13 to 128.
typedef struct CUtensorMap_st {
    alignas(128) unsigned long long opaque[16];
} CUtensorMap;
