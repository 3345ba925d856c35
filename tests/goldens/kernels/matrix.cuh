// Matrix instructions by their spelling, on raw registers: the fragment layouts are part of the
// test.
//
// a, b and c hold a warp's registers one after the other: register r of lane l at [32 r + l].

#pragma once

#include <cuda_fp16.h>

typedef unsigned int u32;

template <typename T, int count>
__device__ void load(T (&x)[count], const T* from) {
    for (int r = 0; r < count; ++r) x[r] = from[32 * r + threadIdx.x];
}

template <typename T, int count, typename Element>
__device__ void store(const T (&x)[count], Element* to) {
    for (int r = 0; r < count; ++r) reinterpret_cast<T*>(to)[32 * r + threadIdx.x] = x[r];
}
