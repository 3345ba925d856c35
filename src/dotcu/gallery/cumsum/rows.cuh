// rows.cuh: a thread's vectors of consecutive rows, on their way to shared memory.
#pragma once

#include <dotcu/row.cuh>

using namespace dotcu;

// Starts to copy a vector of each of `rows` rows, `step` elements apart in memory and `pitch`
// vectors in shared memory. Of those after the first `left` the vectors are zeros.
template <int rows, int pitch, typename T, int width>
__device__ void load_rows(vector<T, width>* part, const T* from, long long step, long long left) {
    if (left >= rows) {
#pragma unroll
        for (int k = 0; k < rows; ++k) copy_later(part + k * pitch, from + k * step);
    } else {
#pragma unroll 1
        for (int k = 0; k < rows; ++k)
            copy_later(part + k * pitch, from + k * step, k < left ? width : 0);
    }
}

// The same where rows begin anywhere, by words. `lanes` threads share a row, of which this one has
// the vector at column `mine`, and a word more is behind theirs. The row has `inside` columns.
template <int rows, int lanes, typename T, int width>
__device__ void load_words(vector<T, width>* part, const T* x, const T* row, long long step,
                           long long left, int mine, int inside) {
#pragma unroll 1
    for (int k = 0; k < rows; ++k, row += step, part += lanes + 1) {
        if (k < left) {
            copy_words_later<lanes>(part, row, mine, inside, row - x < width);
        } else {
            part[0] = {};
            if (mine + width == lanes * width) part[1] = {};
        }
    }
}

// Puts the vectors in the place of the words, once these are there.
template <int rows, int lanes, typename T, int width>
__device__ void shift_words(vector<T, width>* part, const T* row, long long step) {
    __syncwarp();
#pragma unroll
    for (int k = 0; k < rows; ++k, part += lanes + 1) {
        const auto v = vector_of(part, row + k * step);
        __syncwarp();
        *part = v;
    }
}

// Starts to copy the words of 16 bytes of a thread, the first at element i of x, the next ones
// `step` elements and, in shared memory, `threads` words apart. Those after the first `left` are
// zeros, and so is what is not in x, which has `elements`.
template <int count, int threads, typename T>
__device__ void load_tile(T* to, const T* x, long long i, long long step, long long elements,
                          int left) {
    constexpr int width = lanes_of_16_bytes<T>;
    auto* word = reinterpret_cast<vector<T, width>*>(to);
    const long long last = i + (count - 1) * step;
    if (left >= count && min(i, last) >= 0 && max(i, last) + width <= elements) {
#pragma unroll 4
        for (int k = 0; k < count; ++k) copy_later(word + k * threads, x + i + k * step);
    } else {
#pragma unroll 1
        for (int k = 0; k < count; ++k, i += step) {
            if (k < left)
                copy_inside_later(word + k * threads, x, i, elements);
            else
                word[k * threads] = {};
        }
    }
}

// Stores such a tile of `rows` rows, which lie in shared memory `side` elements apart, each as it
// lies in out from element `start` on: whole words, then the ends of rows, element by element.
template <int side, int threads, typename T>
__device__ void store_tile(T* out, const T* part, long long start, long long step, int rows,
                           int columns) {
    constexpr int width = lanes_of_16_bytes<T>, words = side / width, ends = 2 * width;
    const int row = threadIdx.x / words, word = threadIdx.x % words * width;
    const int column = word - lane_of(out + start + row * step);
    if (column >= 0 && column + width <= columns) {
#pragma unroll 4
        for (int k = row; k < rows; k += threads / words)
            store_whole(out + start + k * step + column, load<width>(part + k * side + word));
    }
    static_assert(threads / ends % width == 0, "a thread's rows lie alike");
    const int end = threadIdx.x % ends, first = threadIdx.x / ends;
    const int off = lane_of(out + start + first * step);
    const int last = (off + columns) / width * width;  // the last word, if it is not whole
    const int i = (end < width ? end : last + end - width) - off;
    if (i < 0 || i >= columns || (end < width ? off == 0 && last > 0 : last == 0)) return;
    for (int k = first; k < rows; k += threads / ends)
        out[start + k * step + i] = part[k * side + off + i];
}
