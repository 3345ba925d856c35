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
