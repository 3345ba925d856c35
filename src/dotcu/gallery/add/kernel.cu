// add: a sum, element by element.
//
//     add           out[i] = a[i] + b[i]     a, b, out: n contiguous elements
//     add_number    out[i] = a[i] + value    a, out: n contiguous elements
//
// Idea: memory latency is some 700 ns, so throughput depends on the bytes in flight: 32 to 40 KB
// for each multiprocessor of an H200. A thread issues all of its `steps` loads before it uses the
// first one. They are a block apart, so that neighbouring threads access neighbouring elements.
// Each has `lanes` elements in 4 bytes, so that a warp accesses a whole line of 128 bytes, however
// narrow T is. There are as many threads as the elements need: no loop, and a block that ends
// makes room for the next.
//
// a, b and out start at multiples of `lanes` elements. The rest after the last whole vector, fewer
// than `lanes` elements, goes to the first threads, one each: a block has at least that many.
//
// Cost: n additions and 3 n elements moved (2 n for add_number): bound by memory.
// Source: Little's law: bytes in flight = bandwidth * latency. Vasily Volkov, "Better
// Performance at Lower Occupancy", GTC 2010.

#include <dotcu/grid.cuh>
#include <dotcu/vector.cuh>

// The operation on one element.
template <typename T>
__device__ T sum_of(T a, T b) {
    return static_cast<T>(a + b);
}

// The number has a wider type than narrow elements, as in torch: half types add in float, integers
// in 64 bits.
template <typename T, typename Wide>
__device__ T sum_with(T a, Wide value) {
    return static_cast<T>(static_cast<Wide>(a) + value);
}

template <typename T, int lanes, int steps, bool exact>
__global__ void add(const T* a, const T* b, T* out, long long n) {
    const long long vectors = n / lanes;
    const long long first = static_cast<long long>(blockIdx.x) * blockDim.x * steps + threadIdx.x;
    const long long rest = vectors * lanes + dotcu::thread_of_grid();

    dotcu::vector<T, lanes> x[steps], y[steps];
    T last_x{}, last_y{};
#pragma unroll
    for (int k = 0; k < steps; ++k) {
        const long long v = first + k * blockDim.x;
        if (!exact && v >= vectors) continue;
        x[k] = dotcu::load<lanes>(a + v * lanes);
        y[k] = dotcu::load<lanes>(b + v * lanes);
    }
    if (!exact && rest < n) last_x = a[rest], last_y = b[rest];

#pragma unroll
    for (int k = 0; k < steps; ++k) {
        const long long v = first + k * blockDim.x;
        if (!exact && v >= vectors) continue;
        for (int j = 0; j < lanes; ++j) x[k][j] = sum_of(x[k][j], y[k][j]);
        dotcu::store(out + v * lanes, x[k]);
    }
    if (!exact && rest < n) out[rest] = sum_of(last_x, last_y);
}

template <typename T, typename Wide, int lanes, int steps, bool exact>
__global__ void add_number(const T* a, Wide value, T* out, long long n) {
    const long long vectors = n / lanes;
    const long long first = static_cast<long long>(blockIdx.x) * blockDim.x * steps + threadIdx.x;
    const long long rest = vectors * lanes + dotcu::thread_of_grid();

    dotcu::vector<T, lanes> x[steps];
    T last{};
#pragma unroll
    for (int k = 0; k < steps; ++k) {
        const long long v = first + k * blockDim.x;
        if (exact || v < vectors) x[k] = dotcu::load<lanes>(a + v * lanes);
    }
    if (!exact && rest < n) last = a[rest];

#pragma unroll
    for (int k = 0; k < steps; ++k) {
        const long long v = first + k * blockDim.x;
        if (!exact && v >= vectors) continue;
        for (int j = 0; j < lanes; ++j) x[k][j] = sum_with(x[k][j], value);
        dotcu::store(out + v * lanes, x[k]);
    }
    if (!exact && rest < n) out[rest] = sum_with(last, value);
}
