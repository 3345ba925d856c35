// spans: copies in which a tile is one span of memory on one side, or on both.
//
//     tall    to[c * pitch + r] = from[r * columns + c]   few columns
//     flat    to[c * rows + r] = from[r * row + c]        few rows
//     runs    to[r * columns + c] = from[r * row + c]     rows stay rows
//
// for r < rows and c < columns, once for each index of the other dimensions; numbers and sizes as
// in kernel.cu. Idea: a span is moved by words of 16 bytes, wherever it begins. The lines on the
// other side begin anywhere, and are moved by words, too. In shared memory between both a thread
// gathers a word of the result. Cost: as there.
#include <dotcu/row.cuh>
#include "tile.cuh"

template <typename T>
using Word = dotcu::vector<T, 16 / sizeof(T)>;

// Tiles of `height` rows, a multiple of 8 words; words of the result begin some rows higher.
template <typename T, int threads, int rank, typename... Numbers>
__global__ void __launch_bounds__(threads)
    tall(void* to, unsigned pitch, long long rows, unsigned columns, unsigned height,
         const void* from, Numbers... numbers) {
    constexpr int width = Word<T>::size;
    extern __shared__ __align__(16) unsigned char memory[];
    const Tile tile =
        tile_of_block<rank, true>(rows + width - 1, columns, height, columns, numbers...);
    const long long top = tile.r - (width - 1), first = max(top, 0ll);
    const T* x = reinterpret_cast<const T*>(static_cast<const char*>(from) + tile.from);
    const T* span = x + first * columns;
    const int count = static_cast<int>(min(tile.r + height, rows) - first) * columns;
    const int low = dotcu::lane_of(span);
    for (int n = threadIdx.x; n * width - low < count; n += threads)
        dotcu::copy_inside_later(reinterpret_cast<Word<T>*>(memory) + n, span, n * width - low,
                                 count);
    dotcu::commit_copies();
    dotcu::wait_for_copies<0>();
    __syncthreads();

    const T* row = reinterpret_cast<const T*>(memory) + low + (top - first) * columns;
    char* out = static_cast<char*>(to) + tile.to + top * sizeof(T);
    for (unsigned n = threadIdx.x; n < height / width * columns; n += threads) {
        const unsigned c = n / 8 % columns, w = n % 8 + n / 8 / columns * 8;
        T* column = reinterpret_cast<T*>(out + 1ll * c * pitch);
        const unsigned r = w * width + (width - dotcu::lane_of(column)) % width;
        const T* at = row + r * columns + c;
        Word<T> turned;
        const bool whole = top + r >= 0 && top + r + width <= rows;
#pragma unroll
        for (int k = 0; k < width; ++k)
            if (whole) turned[k] = at[k * columns];
        if (whole) dotcu::store(column + r, turned);
        for (int k = 0; k < width && !whole; ++k)
            if (top + r + k >= 0 && top + r + k < rows) column[r + k] = at[k * columns];
    }
}

// The lines of a tile, each by the words that it lies in, `apart` words from one to the next.
template <typename T>
struct Lines {
    const char* x;  // the tile's first element
    long long row;  // bytes
    unsigned words, apart;
    Word<T>* word;

    // The elements from a word to the first one of line r.
    __device__ unsigned by(unsigned r) const {
        return (static_cast<unsigned>(reinterpret_cast<size_t>(x)) +
                r * static_cast<unsigned>(row)) %
               16 / sizeof(T);
    }

    // Copies `rows` of them, each with the `left` elements that it has at most. What is before a
    // line is copied, too, but nothing before the tensor, at `origin`.
    template <int threads>
    __device__ void copy(unsigned rows, long long left, const void* origin) const {
        constexpr int width = Word<T>::size;
        const unsigned down = threads / words, right = threads % words;
        unsigned r = threadIdx.x / words, w = threadIdx.x % words;
        while (r < rows) {
            const int c = static_cast<int>(w * width) - static_cast<int>(by(r));
            const T* from = reinterpret_cast<const T*>(x + r * row) + c;
            const int count = max(min(left - c, static_cast<long long>(width)), 0ll);
            Word<T>* to = word + r * apart + w;
            if (count && from >= origin)
                dotcu::copy_part_later(to, from, count);
            else
                dotcu::copy_inside_later(to, from - c, c, c + count);
            r += down, w += right;
            if (w >= words) w -= words, ++r;
        }
        dotcu::commit_copies();
        dotcu::wait_for_copies<0>();
        __syncthreads();
    }
};

// Tiles of `across` columns and of all rows, `most` at most.
template <typename T, int most, int threads, int rank, typename... Numbers>
__global__ void __launch_bounds__(threads)
    flat(void* to, unsigned rows, long long columns, unsigned row, unsigned across,
         const void* from, Numbers... numbers) {
    constexpr int width = Word<T>::size;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ unsigned begin[most + width];  // of a column's elements, and of the next column's
    const Tile tile = tile_of_block<rank, true>(rows, columns, rows, across, numbers...);
    const unsigned words = across / width + 1;
    const Lines<T> lines = {static_cast<const char*>(from) + tile.from + tile.c * sizeof(T), row,
                            words, words | 1, reinterpret_cast<Word<T>*>(memory)};
    if (threadIdx.x < rows + width) {
        const unsigned r = threadIdx.x % rows;
        begin[threadIdx.x] = r * lines.apart * width + lines.by(r) + threadIdx.x / rows;
    }
    lines.template copy<threads>(rows, columns - tile.c, from);
    T* span = reinterpret_cast<T*>(static_cast<char*>(to) + tile.to) + tile.c * rows;
    const int count = tile.columns * rows;
    const unsigned down = threads * width % rows, right = threads * width / rows;
    int i = static_cast<int>(threadIdx.x) * width - dotcu::lane_of(span);
    unsigned c = (i + rows * width) / rows - width, r = (i + rows * width) % rows;
    for (; i < count; i += threads * width) {
        const auto at = [&](int k) {
            return reinterpret_cast<const T*>(memory)[static_cast<int>(begin[r + k] + c)];
        };
        Word<T> turned{};
        const bool whole = i >= 0 && i + width <= count;
#pragma unroll
        for (int k = 0; k < width; ++k)
            if (whole) turned[k] = at(k);
        if (whole) dotcu::store(span + i, turned);
        for (int k = 0; k < width && !whole; ++k)
            if (i + k >= 0 && i + k < count) span[i + k] = at(k);
        c += right, r += down;
        if (r >= rows) r -= rows, ++c;
    }
}

// Tiles of `height` whole rows, two words long or more, or of `across` columns of one row.
template <typename T, int threads, int rank, typename... Numbers>
__global__ void __launch_bounds__(threads)
    runs(void* to, long long pitch, long long rows, long long columns, long long row,
         unsigned height, unsigned across, const void* from, Numbers... numbers) {
    constexpr int width = Word<T>::size;
    extern __shared__ __align__(16) unsigned char memory[];
    Word<T>* word = reinterpret_cast<Word<T>*>(memory);
    const Tile tile = tile_of_block<rank, false>(rows, columns, height, across, numbers...);
    const unsigned words = (across + 2 * width - 2) / width;
    const Lines<T> lines = {
        static_cast<const char*>(from) + tile.from + tile.r * row + tile.c * sizeof(T), row, words,
        words, word + 1};
    if (threadIdx.x == 0) word[0] = word[tile.rows * words + 1] = {};  // around the lines
    lines.template copy<threads>(tile.rows, columns - tile.c, from);
    T* span = reinterpret_cast<T*>(static_cast<char*>(to) + tile.to + tile.r * pitch) + tile.c;
    const int wide = tile.columns, count = tile.rows * wide;
    const auto at = [&](int r, int c) {  // a line's word from column c on, or the lines' around it
        const unsigned e = r * words * width + lines.by(r) + c + width;
        return dotcu::between(word[e / width], word[e / width + 1], e % width);
    };
    int i = static_cast<int>(threadIdx.x) * width - dotcu::lane_of(span);
    int r = max(i, 0) / wide, c = i - r * wide;
    const int down = threads * width / wide, right = threads * width % wide;
    for (; i < count; i += threads * width) {
        Word<T> value = at(r, c);
        if (c + width > wide && r + 1 < tile.rows) {
            const Word<T> next = at(r + 1, c - wide);
#pragma unroll
            for (int k = 0; k < width; ++k) value[k] = c + k < wide ? value[k] : next[k];
        }
        dotcu::store_inside<true>(span, i, count, value);
        c += right, r += down;
        if (c >= wide) c -= wide, ++r;
    }
}
