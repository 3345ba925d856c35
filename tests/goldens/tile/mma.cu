// Matrix products of each element type
#include "golden.cuh"

template <class T, class Acc>
__tile_global__ void mma(const T* x, const T* y, const Acc* z, Acc* out) {
    auto a = read<ct::shape<16, 32>>(x);
    auto b = read<ct::shape<32, 16>>(y);
    write(out, ct::mma(a, b, read<ct::shape<16, 16>>(z)));
}

// Signed and unsigned bytes
template <class A, class B>
__tile_global__ void mma_bytes(const A* x, const B* y, const int* z, int* out) {
    auto a = read<ct::shape<16, 32>>(x);
    auto b = read<ct::shape<32, 16>>(y);
    write(out, ct::mma(a, b, read<ct::shape<16, 16>>(z)));
}

__tile_global__ void mma_tf32(const float* x, const float* y, const float* z, float* out) {
    auto a = ct::element_cast<tf32>(read<ct::shape<16, 32>>(x));
    auto b = ct::element_cast<tf32>(read<ct::shape<32, 16>>(y));
    write(out, ct::mma(a, b, read<ct::shape<16, 16>>(z)));
}

// Large enough for the warp groups' instruction
template <class T, class Acc>
__tile_global__ void mma_large(const T* x, const T* y, Acc* out) {
    auto a = read<ct::shape<64, 64>>(x);
    auto b = read<ct::shape<64, 64>>(y);
    write(out, ct::mma(a, b, ct::zeros<ct::tile<Acc, ct::shape<64, 64>>>()));
}

// One left matrix for each of four right ones
template <class T, class Acc>
__tile_global__ void mma_batched(const T* x, const T* y, const Acc* z, Acc* out) {
    auto a = read<ct::shape<1, 8, 16>>(x);
    auto b = read<ct::shape<4, 16, 8>>(y);
    write(out, ct::mma(a, b, read<ct::shape<4, 8, 8>>(z)));
}

template <class T, class R>
__tile_global__ void matmul(const T* x, const T* y, R* out) {
    write(out, ct::matmul(read<ct::shape<16, 16>>(x), read<ct::shape<16, 16>>(y)));
}
