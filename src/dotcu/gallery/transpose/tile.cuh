// tile.cuh: the tile of a block, and the elements of its threads.
#pragma once

#include <dotcu/vector.cuh>

struct Tile {
    long long r, c, from, to;  // its first row and column; where its matrix begins
    unsigned rows, columns;    // inside the matrix
};
// Where an index of dimensions begins in `from` and `to`, by their sizes and strides.
struct Place {
    long long from = 0, to = 0;
};
template <int rank, typename... Numbers>
__device__ Place place_of(unsigned index, Numbers... numbers) {
    const long long number[] = {numbers..., 0};
    Place place;
    for (int n = rank; n < sizeof...(Numbers); n += 3) {
        const unsigned size = static_cast<unsigned>(number[n]);
        place.from += index % size * number[n + 1];
        place.to += index % size * number[n + 2];
        index /= size;
    }
    return place;
}
// Neighbouring blocks have tiles below each other or side by side, so that their writes are near.
template <int rank, bool below, typename... Numbers>
__device__ Tile tile_of_block(long long rows, long long columns, unsigned height, unsigned width,
                              Numbers... numbers) {
    const unsigned down = (rows + height - 1) / height, across = (columns + width - 1) / width;
    const unsigned r = below ? blockIdx.x % down : blockIdx.x / across % down;
    const unsigned c = below ? blockIdx.x / down % across : blockIdx.x % across;
    const Place place = place_of<rank>(blockIdx.x / across / down, numbers...);
    Tile tile = {1ll * height * r, 1ll * width * c, place.from, place.to};
    tile.rows = min(rows - tile.r, 1ll * height);
    tile.columns = min(columns - tile.c, 1ll * width);
    return tile;
}

// Calls f(k, r, c) for the elements of a thread, one row of them after the other.
template <int batch, int threads, typename F>
__device__ void each_element(unsigned rows, unsigned columns, F f) {
    const unsigned down = threads / columns, across = threads % columns;
    unsigned r = threadIdx.x / columns, c = threadIdx.x % columns;
#pragma unroll
    for (int k = 0; k < batch; ++k) {
        if (r < rows) f(k, r, c);
        r += down, c += across;
        if (c >= columns) c -= columns, ++r;
    }
}
