// Copies lines of B x rows x columns elements, of any strides, to lines that start at multiples of
// 16 bytes, `pitch` elements apart, as TMA reads them. A thread writes 16 bytes.
//
// What lies between two lines becomes zero, what lies behind the last one stays.
// Cost: bytes of x read once, bytes of the padded lines written once. Bound by memory.

#include "dotcu/tensor.cuh"

template <typename T>
__global__ void matmul_lines(const T* x, long long batch, long long row, long long column, T* out,
                             long long rows, long long columns, long long pitch, long long count) {
    constexpr int lanes = 16 / sizeof(T);
    struct alignas(16) Chunk {
        T lane[lanes];
    };
    const long long chunks = (pitch + lanes - 1) / lanes;
    const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    const long long line = i / chunks, first = i % chunks * lanes;
    const long long start = line * pitch + first;
    if (start >= count) return;
    x += line / rows * batch + line % rows * row + first * column;
    Chunk chunk;
    const bool whole = column == 1 && first + lanes <= columns;
    if (whole && reinterpret_cast<unsigned long long>(x) % sizeof(Chunk) == 0) {
        chunk = *reinterpret_cast<const Chunk*>(x);
    } else {
        for (int lane = 0; lane < lanes; ++lane) {
            chunk.lane[lane] = first + lane < columns ? x[lane * column] : static_cast<T>(0.0f);
        }
    }
    if (start + lanes <= count) {
        *reinterpret_cast<Chunk*>(out + start) = chunk;
        return;
    }
    for (int lane = 0; start + lane < count; ++lane) out[start + lane] = chunk.lane[lane];
}
