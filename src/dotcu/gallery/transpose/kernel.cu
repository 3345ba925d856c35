// transpose: a copy of a tensor with its dimensions in another order.
//
//     transpose    to[c * pitch + r] = from[r * row + c * column]    r < rows, c < columns
//     narrow       the same where rows or columns are few
//
// once for each index of the other dimensions. `numbers` are the `rank` strides that dotcu.strided
// passes, then of each other dimension, innermost first, its size and its strides in `from` and
// `to`. T is a word of an element's bytes. Sizes count T, strides bytes; row, column and pitch fit
// 32 bits. Idea: both sides need 16 bytes per thread, but neighbours on one side are far apart on
// the other. So a thread loads `load` elements of each of `store` rows and transposes this small
// matrix in registers. Shared memory then assembles lines from all threads; XOR spreads them over
// its banks, so that neither side has bank conflicts.
//
// Cost: each byte is read once and written once: bound by memory. Source: Ruetsch and Micikevicius,
// "Optimizing Matrix Transpose in CUDA", 2009.

#include "tile.cuh"

// Tiles of side x side, 128 bytes or more. All numbers are multiples of `load` and of `store`.
template <typename T, int load, int store, int side, int threads, int rank, typename... Numbers>
__global__ void __launch_bounds__(threads)
    transpose(void* to, unsigned pitch, long long rows, long long columns, unsigned row,
              unsigned column, const void* from, Numbers... numbers) {
    constexpr int across = side / load, down = side / store, parts = across * down / threads;
    constexpr int bytes = store * sizeof(T), word = bytes < 4 ? 4 / bytes : 1, banks = 128 / bytes;
    __shared__ dotcu::vector<T, store> line[side][down];
    const auto place = [](int c, int part) { return part ^ c / load * word % banks; };
    const Tile tile = tile_of_block<rank, true>(rows, columns, side, side, numbers...);
    const char* x = static_cast<const char*>(from) + tile.from + tile.r * row + tile.c * column;
    char* out = static_cast<char*>(to) + tile.to + tile.c * pitch + tile.r * sizeof(T);

    dotcu::vector<T, load> in[parts * store];
#pragma unroll
    for (int n = 0; n < parts * store; ++n) {
        const unsigned part = n / store * threads + threadIdx.x;
        const size_t r = min(part / across * store, tile.rows - store) + n % store;  // at the edge
        const size_t c = min(part % across * load, tile.columns - load);             // once more
        const size_t offset = r * row + c * (load > 1 ? sizeof(T) : column);
        in[n] = dotcu::load<load>(reinterpret_cast<const T*>(x + offset));
    }
#pragma unroll
    for (int n = 0; n < parts * load; ++n) {
        const unsigned part = n / load * threads + threadIdx.x, c = part % across * load + n % load;
        dotcu::vector<T, store> turned;
        for (int i = 0; i < store; ++i) turned[i] = in[n / load * store + i][n % load];
        line[c][place(c, part / across)] = turned;
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < parts * load; ++n) {
        const unsigned part = n * threads + threadIdx.x;
        const size_t r = part % down * store, c = part / down;
        const auto turned = line[c][place(c, part % down)];
        if (r >= tile.rows || c >= tile.columns) continue;
        dotcu::store(reinterpret_cast<T*>(out + c * pitch + r * sizeof(T)), turned);
    }
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
