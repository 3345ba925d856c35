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

// The part of a row that a tile has.
struct alignas(16) Run {
    long long from;    // bytes to its first element
    int count, begin;  // its elements, with those before it in its first word; where column 0 is
};

// Starts to copy a word, and to fetch the 256 bytes around it into L2.
template <typename T>
__device__ void copy_and_fetch_later(Word<T>* to, const T* from) {
    const unsigned there = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(there), "l"(from)
                 : "memory");
}

// Tiles of `bytes` of the result, for rows of two words or more: parts of rows, one after the
// other. They are copied by the words that they lie in, `words` at most, an odd number from one row
// to the next, so that banks differ. Then the words of the result that two rows share are made, one
// per row, so that each other word is two adjacent ones, shifted. `soon`: tiles that run at the
// same time have the rows' neighbours. `most` and `room`: rows of a tile and words of all of them;
// `reach`: bytes from the tensor's first element to the end of its last one.
template <typename T, int bytes, int threads, bool soon, int rank, typename... Numbers>
__global__ void __launch_bounds__(threads)
    runs(void* to, long long total, long long columns, long long reach, unsigned words,
         unsigned most, unsigned room, const void* from, Numbers... numbers) {
    constexpr int width = Word<T>::size, size = sizeof(T), elements = bytes / size;
    extern __shared__ __align__(16) unsigned char memory[];
    Word<T>* word = reinterpret_cast<Word<T>*>(memory);
    Word<T>* joint = word + room;
    Run* run = reinterpret_cast<Run*>(joint + most + 1);
    const char* x = static_cast<const char*>(from);

    const long long begin = 1ll * blockIdx.x * elements, first = begin / columns;
    const int end = static_cast<int>(min(total - begin, 1ll * elements));
    const int wide = static_cast<int>(min(columns, 1ll * elements));
    const long long left = columns - (begin - first * columns);       // of the first row
    const int skip = static_cast<int>(wide - min(left, 1ll * wide));  // columns before the tile
    const int rows = (end + skip - 1) / wide + 1;
    const auto slot = [&](int k) {  // of a row's first word
        return max(k * static_cast<int>(words | 1) - skip / width, 0);
    };
    bool edge = false;
    for (int k = threadIdx.x; k < rows; k += threads) {
        long long at = place_of<rank>(static_cast<unsigned>(first) + k, numbers...).from;
        if (k == 0) at += (columns - left) * size;
        const int low = k ? 0 : skip, high = min(wide, end + skip - k * wide);
        const int by = dotcu::lane_of(reinterpret_cast<const T*>(x + at)), count = by + high - low;
        const int whole = (count + width - 1) / width;
        edge |= at < by * size || at + (whole * width - by) * size > reach;
        run[k] = {at, count, slot(k) * width + by - low};
        word[slot(k) + whole] = {};  // read beside the row, but not used
        if (k + 1 < rows) word[slot(k + 1) - 1] = {};
    }
    const bool careful = __syncthreads_or(edge);  // a word is not in the tensor as a whole
    const unsigned below = threads / words, right = threads % words;
    unsigned r = threadIdx.x / words, w = threadIdx.x % words;
    while (r < rows) {
        const Run of = run[r];
        if (static_cast<int>(w * width) < of.count) {
            const T* row = reinterpret_cast<const T*>(x + of.from);
            const int c = static_cast<int>(w * width) - dotcu::lane_of(row);
            if (careful)
                dotcu::copy_inside_later(word + slot(r) + w, row, c,
                                         of.count - dotcu::lane_of(row));
            else if (soon)
                copy_and_fetch_later(word + slot(r) + w, row + c);
            else
                dotcu::copy_later(word + slot(r) + w, row + c);
        }
        r += below, w += right;
        if (w >= words) w -= words, ++r;
    }
    dotcu::commit_copies();
    dotcu::wait_for_copies<0>();
    __syncthreads();

    const auto at = [&](int e) {
        const T* two = reinterpret_cast<const T*>(word) + (e & -width);
        return dotcu::between(dotcu::load<width>(two), dotcu::load<width>(two + width),
                              e & (width - 1));
    };
    for (int k = threadIdx.x; k <= rows; k += threads) {
        const int next = (k + 1) * wide - skip, kept = next % width;  // where the next row begins
        Word<T> value{};
        if (k < rows && next <= end && kept) {
            value = at(run[k].begin + wide - kept);
            const Word<T> other = k + 1 < rows ? at(run[k + 1].begin - kept) : value;
#pragma unroll
            for (int j = 0; j < width; ++j) value[j] = j < kept ? value[j] : other[j];
        }
        joint[k] = value;
    }
    __syncthreads();
    T* out = static_cast<T*>(to) + begin;
    int i = threadIdx.x * width, k = (i + skip) / wide, c = (i + skip) % wide;
#pragma unroll
    for (int n = 0; n < elements / width / threads; ++n) {
        const int joined = static_cast<int>(joint - word + k) * width;
        if (i < end) {
            const Word<T> value = at(c + width > wide ? joined : run[k].begin + c);
            if (end == elements)
                dotcu::store_whole(out + i, value);
            else
                dotcu::store_inside<true>(out, i, end, value);
        }
        i += threads * width, c += threads * width % wide, k += threads * width / wide;
        if (c >= wide) c -= wide, ++k;
    }
}
