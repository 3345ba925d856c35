// square: out[i] = x[i] * x[i].
//
//     x, out: n contiguous elements that start at multiples of `lanes` elements
//
// Idea: as in add, a thread issues all of its loads before it uses the first: `steps` vectors of
// `lanes` elements, a block apart. A block has at least `lanes` threads.
//
// Cost: n multiplications and 2 n elements moved: bound by memory.

#include <dotcu/grid.cuh>
#include <dotcu/vector.cuh>

template <typename T, int lanes, int steps>
__global__ void square(const T* x, T* out, long long n) {
    const long long vectors = n / lanes;
    const long long first = static_cast<long long>(blockIdx.x) * blockDim.x * steps + threadIdx.x;
    const long long rest = vectors * lanes + dotcu::thread_of_grid();

    dotcu::vector<T, lanes> value[steps];
    T last{};
#pragma unroll
    for (int k = 0; k < steps; ++k) {
        const long long v = first + k * blockDim.x;
        if (v < vectors) value[k] = dotcu::load<lanes>(x + v * lanes);
    }
    if (rest < n) last = x[rest];

#pragma unroll
    for (int k = 0; k < steps; ++k) {
        const long long v = first + k * blockDim.x;
        if (v >= vectors) continue;
#pragma unroll
        for (int j = 0; j < lanes; ++j) value[k][j] = static_cast<T>(value[k][j] * value[k][j]);
        dotcu::store(out + v * lanes, value[k]);
    }
    if (rest < n) out[rest] = static_cast<T>(last * last);
}
