// copy: rows whose elements stay neighbours, or are far apart on both sides.
//
//     copy      to[r * pitch + c] = from[r * row + c * column]    r < rows, c < columns
//     narrow    to[c * pitch + r] = the same, where rows or columns are few
//
// once for each index of the other dimensions; numbers and sizes as in kernel.cu, but T is a word
// of several neighbours' bytes, too. Idea: tiles of
// height x width elements, whole rows if they fit, of which a thread loads `batch` before it stores
// the first. Cost: as there.

#include "tile.cuh"

template <typename T, int batch, int threads, int rank, typename... Numbers>
__global__ void __launch_bounds__(threads)
    copy(void* to, long long pitch, long long rows, long long columns, long long row,
         long long column, unsigned height, unsigned width, const void* from, Numbers... numbers) {
    const Tile tile = tile_of_block<rank, false>(rows, columns, height, width, numbers...);
    const char* x = static_cast<const char*>(from) + tile.from + tile.r * row + tile.c * column;
    char* out = static_cast<char*>(to) + tile.to + tile.r * pitch + tile.c * sizeof(T);
    dotcu::vector<T, 1> in[batch];
    each_element<batch, threads>(tile.rows, tile.columns, [&](int k, unsigned r, unsigned c) {
        in[k] = dotcu::load<1>(reinterpret_cast<const T*>(x + r * row + c * column));
    });
    each_element<batch, threads>(tile.rows, tile.columns, [&](int k, unsigned r, unsigned c) {
        dotcu::store(reinterpret_cast<T*>(out + r * pitch) + c, in[k]);
    });
}

// Tiles of height x width, batch * threads elements at most, of matrices that have few rows or few
// columns. Elements of a tile are read row by row, and written column by column.
template <typename T, int batch, int threads, int rank, typename... Numbers>
__global__ void __launch_bounds__(threads)
    narrow(void* to, unsigned pitch, long long rows, long long columns, unsigned row,
           unsigned column, unsigned height, unsigned width, const void* from, Numbers... numbers) {
    constexpr unsigned of_bank = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
    __shared__ dotcu::vector<T, 1> line[batch * threads * 8 / 5];
    const unsigned apart = ((height + of_bank - 1) / of_bank | 1) * of_bank;  // in different banks
    const Tile tile = tile_of_block<rank, true>(rows, columns, height, width, numbers...);
    const char* x = static_cast<const char*>(from) + tile.from + tile.r * row + tile.c * column;
    char* out = static_cast<char*>(to) + tile.to + tile.c * pitch + tile.r * sizeof(T);
    dotcu::vector<T, 1> in[batch];
    each_element<batch, threads>(tile.rows, tile.columns, [&](int k, size_t r, size_t c) {
        in[k] = dotcu::load<1>(reinterpret_cast<const T*>(x + r * row + c * column));
    });
    each_element<batch, threads>(tile.rows, tile.columns, [&](int k, unsigned r, unsigned c) {
        line[c * apart + r] = in[k];
    });
    __syncthreads();
    each_element<batch, threads>(tile.columns, tile.rows, [&](int, size_t c, size_t r) {
        dotcu::store(reinterpret_cast<T*>(out + c * pitch) + r, line[c * apart + r]);
    });
}
