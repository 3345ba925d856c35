// What the golden tile kernels share: 128 elements for each tile block, read and written by
// pointers.
#pragma once
#include "cuda_tile.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_tf32.h>
namespace ct = cuda::tiles;
using namespace ct::literals;

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned;
using i64 = long long;
using u64 = unsigned long long;
using f16 = __half;
using bf16 = __nv_bfloat16;
using tf32 = __nv_tf32;
using e4m3 = __nv_fp8_e4m3;
using e5m2 = __nv_fp8_e5m2;
using f32 = float;
using f64 = double;

using Flush =
    ct::subnormals_rounding_mode_constant<ct::subnormals_rounding_mode::round_subnormals_to_zero>;

constexpr int N = 128;

// The elements from a pointer on, as many as a shape has
template <class Shape, class T>
__tile__ auto read(T* from) {
    auto flat = from + ct::iota<ct::tile<int, ct::shape<ct::shape_size_v<Shape>>>>();
    return ct::reshape(ct::load(flat), Shape{});
}

template <class T, class Tile>
__tile__ void write(T* to, Tile values) {
    using Flat = ct::shape<ct::tile_size_v<Tile>>;
    ct::store(to + ct::iota<ct::tile<int, Flat>>(), ct::reshape(values, Flat{}));
}

// This tile block's elements
template <class T>
__tile__ auto mine(T* from) {
    return read<ct::shape<N>>(from + int(ct::bid().x) * N);
}
template <class T, class Tile>
__tile__ void give(T* to, Tile values) {
    write(to + int(ct::bid().x) * N, values);
}

#define UNARY(NAME, ...)                            \
    template <class T, class R = T>                 \
    __tile_global__ void NAME(const T* x, R* out) { \
        auto a = mine(x);                           \
        give(out, __VA_ARGS__);                     \
    }
#define BINARY(NAME, ...)                                       \
    template <class T, class R = T>                             \
    __tile_global__ void NAME(const T* x, const T* y, R* out) { \
        auto a = mine(x);                                       \
        auto b = mine(y);                                       \
        give(out, __VA_ARGS__);                                 \
    }
#define TERNARY(NAME, ...)                                                  \
    template <class T, class R = T>                                         \
    __tile_global__ void NAME(const T* x, const T* y, const T* z, R* out) { \
        auto a = mine(x);                                                   \
        auto b = mine(y);                                                   \
        auto c = mine(z);                                                   \
        give(out, __VA_ARGS__);                                             \
    }
