// copy: rows whose elements stay neighbours, or are far apart on both sides.
//
//     to[r * pitch + c] = from[r * row + c * column]    r < rows, c < columns
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
