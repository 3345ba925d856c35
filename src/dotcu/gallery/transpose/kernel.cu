// transpose: a copy of a tensor with its dimensions in another order.
//
//     transpose    to[c * pitch + r] = from[r * row + c * column]    r < rows, c < columns
//     copy         to[r * pitch + c] = from[r * row + c * column]
//
// once for each index of the other dimensions. `numbers` are the `rank` strides that dotcu.strided
// passes, then of each other dimension, innermost first, its size and its strides in `from` and
// `to`. T is a word of an element's bytes or, in copy, of several neighbours'. Sizes count T,
// strides bytes; those of transpose fit 32 bits. Idea: both sides need 16 bytes per thread, but
// neighbours on one side are far apart on the other. So a thread loads `load` elements of each of
// `store` rows and transposes this small matrix in registers. Shared memory then assembles lines
// from all threads; XOR spreads them over its banks, so that neither side has bank conflicts.
//
// Cost: each byte is read once and written once: bound by memory. Source: Ruetsch and Micikevicius,
// "Optimizing Matrix Transpose in CUDA", 2009.

#include <dotcu/vector.cuh>

struct Tile {
    long long r, c, from, to;  // its first row and column; where its matrix begins
    unsigned rows, columns;    // inside the matrix
};
// Neighbouring blocks have tiles below each other or side by side, so that their writes are near.
template <int rank, bool below, typename... Numbers>
__device__ Tile tile_of_block(long long rows, long long columns, unsigned height, unsigned width,
                              Numbers... numbers) {
    const unsigned down = (rows + height - 1) / height, across = (columns + width - 1) / width;
    const unsigned r = below ? blockIdx.x % down : blockIdx.x / across % down;
    const unsigned c = below ? blockIdx.x / down % across : blockIdx.x % across;
    Tile tile = {1ll * height * r, 1ll * width * c};
    tile.rows = min(rows - tile.r, 1ll * height);
    tile.columns = min(columns - tile.c, 1ll * width);
    const long long number[] = {numbers..., 0};
    unsigned index = blockIdx.x / across / down;
    for (int n = rank; n < sizeof...(Numbers); n += 3) {
        tile.from += index % unsigned(number[n]) * number[n + 1];
        tile.to += index % unsigned(number[n]) * number[n + 2];
        index /= unsigned(number[n]);
    }
    return tile;
}

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

// Tiles of 4 * threads elements, `width` of them side by side: all loads, then all stores.
template <typename T, int width, int threads, int rank, typename... Numbers>
__global__ void __launch_bounds__(threads)
    copy(void* to, long long pitch, long long rows, long long columns, long long row,
         long long column, const void* from, Numbers... numbers) {
    const Tile tile =
        tile_of_block<rank, false>(rows, columns, 4 * threads / width, width, numbers...);
    const char* x = static_cast<const char*>(from) + tile.from + tile.r * row + tile.c * column;
    char* out = static_cast<char*>(to) + tile.to + tile.r * pitch + tile.c * sizeof(T);
    dotcu::vector<T, 1> in[4];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const unsigned n = k % 4 * threads + threadIdx.x, r = n / width, c = n % width;
        if (r >= tile.rows || c >= tile.columns) continue;
        if (k < 4) in[k] = dotcu::load<1>(reinterpret_cast<const T*>(x + r * row + c * column));
        if (k >= 4) dotcu::store(reinterpret_cast<T*>(out + r * pitch) + c, in[k - 4]);
    }
}
