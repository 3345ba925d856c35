// transpose: a copy of a tensor with its dimensions in another order.
//
//     transpose    to[c * pitch + r] = from[r * row + c * column]    r < rows, c < columns
//     shifted      the same, with rows that begin anywhere
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
#include <dotcu/row.cuh>
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

// The same where rows of either side begin anywhere: words of 16 bytes are copied as they lie, and
// threads gather columns of words of the result, in memory from multiples of `line` elements on.
template <typename T, int line, int down, int across, int threads, int rank, typename... Numbers>
__global__ void __launch_bounds__(threads)
    shifted(void* to, unsigned pitch, long long rows, long long columns, unsigned row,
            unsigned column, const void* from, Numbers... numbers) {
    constexpr int width = 16 / sizeof(T), words = across / width + 1, height = down + line - 1;
    static_assert(down % (8 * width) == 0 && across % width == 0, "8 words side by side");
    extern __shared__ uint4 memory[];   // height * words + height / width + 1
    const auto word = [](unsigned r) {  // banks differ
        return reinterpret_cast<dotcu::vector<T, width>*>(memory) + r * words + r / width;
    };
    const Tile tile = tile_of_block<rank, true>(rows + line - 1, columns, down, across, numbers...);
    const long long top = tile.r - (line - 1);  // so many rows higher
    const char* x = static_cast<const char*>(from) + tile.from + top * row + tile.c * sizeof(T);
    char* out = static_cast<char*>(to) + tile.to + tile.c * pitch + top * sizeof(T);
    const auto by = [&](unsigned r) { return (size_t(x) + r * row) % 16 / sizeof(T); };
    for (int n = threadIdx.x; n < height * words; n += threads) {
        const int r = n / words, c = n % words * width - by(r);
        const T* here = reinterpret_cast<const T*>(x + 1ll * r * row) - tile.c;
        if (top + r >= 0 && top + r < rows)
            dotcu::copy_inside_later(word(r) + n % words, here, tile.c + c, columns);
    }
    dotcu::commit_copies();
    dotcu::wait_for_copies<0>();
    __syncthreads();
    for (int n = threadIdx.x; n < down * across / width; n += threads) {
        const unsigned c = n / 8 % across, w = n % 8 + n / 8 / across * 8;
        if (c >= tile.columns) continue;
        T* column = reinterpret_cast<T*>(out + 1ll * c * pitch);
        const unsigned r = w * width + (0 - reinterpret_cast<size_t>(column) / sizeof(T)) % line;
        const auto at = [&](unsigned r) { return reinterpret_cast<const T*>(word(r))[c + by(r)]; };
        dotcu::vector<T, width> turned;
        const bool whole = top + r >= 0 && top + r + width <= rows;
#pragma unroll
        for (int k = 0; k < width; ++k)
            if (whole) turned[k] = at(r + k);
        if (whole) dotcu::store(column + r, turned);
        for (int k = 0; k < width && !whole; ++k)
            if (top + r + k >= 0 && top + r + k < rows) column[r + k] = at(r + k);
    }
}
