// Tiles from nothing, and tiles of other shapes
#include "golden.cuh"

template <class T>
__tile_global__ void iota(T* out) {
    give(out, ct::iota<ct::tile<T, ct::shape<N>>>());
}

template <class T>
__tile_global__ void filled(T value, T* out) {
    using Tile = ct::tile<T, ct::shape<4, 8>>;
    write(out, ct::zeros<Tile>());
    write(out + 32, ct::ones<Tile>());
    write(out + 64, ct::full<Tile>(value));
}

__tile_global__ void constants(int* ints, float* floats, f16* halves) {
    constexpr int whole[2][4] = {{3, -1, 4, 1}, {-5, 9, 2147483647, -2147483647 - 1}};
    constexpr float real[4] = {0.1f, -0.0f, 3.4028235e38f, 1e-45f};
    write(ints, ct::tile{whole});
    write(floats, ct::tile{real});
    write(halves, ct::full<ct::tile<f16, ct::shape<4>>>(f16(0.333251953125f)));
}

template <class T>
__tile_global__ void broadcast(const T* x, T* out) {
    auto row = read<ct::shape<1, 8>>(x);
    auto column = read<ct::shape<4, 1>>(x + 8);
    write(out, ct::broadcast<ct::shape<4, 8>>(row));
    write(out + 32, ct::broadcast<ct::shape<4, 8>>(column));
    write(out + 64, row + column);
    write(out + 96, ct::broadcast<ct::shape<4, 8>>(x[12]));
}

template <class T>
__tile_global__ void reshape(const T* x, T* out) {
    auto cube = ct::reshape(read<ct::shape<16, 8>>(x), ct::shape<2, 4, 16>{});
    write(out, ct::sum(cube, 1_ic));
}

template <class T>
__tile_global__ void permute(const T* x, T* out) {
    write(out, ct::permute(read<ct::shape<4, 8, 4>>(x), ct::dimension_map<1, 2, 0>{}));
}

template <class T>
__tile_global__ void transpose(const T* x, T* out) {
    write(out, ct::transpose(read<ct::shape<8, 16>>(x)));
}

template <class T>
__tile_global__ void cat(const T* x, T* out) {
    auto a = read<ct::shape<4, 8>>(x);
    auto b = read<ct::shape<4, 8>>(x + 32);
    write(out, ct::cat(a, b, 0_ic));
    write(out + 64, ct::cat(a, b, 1_ic));
}

template <class T>
__tile_global__ void extract(const T* x, int row, T* out) {
    auto a = read<ct::shape<8, 16>>(x);
    write(out, ct::extract(a, ct::shape<2, 4>{}, row, 1));
    write(out + 8, ct::extract(a, ct::shape<8, 1>{}, 0, 5));
}

template <class T>
__tile_global__ void insert(const T* x, int column, T* out) {
    auto a = read<ct::shape<8, 16>>(x);
    write(out, ct::insert(a, ct::full<ct::tile<T, ct::shape<2, 4>>>(T(7)), 3, column));
}
