// fast_add: out[i] = a[i] + b[i], 16 bytes at a time, by a grid of any size.
//
//     a, b, out: n contiguous elements that start at multiples of `lanes` elements
//
// Idea: a load of 16 bytes moves as much as four loads of 4 with a quarter of the instructions,
// which frees issue slots for narrow types: 16 bytes hold up to 16 elements. A thread has `steps`
// vectors of both inputs in flight, a block apart, before it adds the first. The rest after the
// last whole vector goes to the first threads, one element each, loaded together with the vectors.
//
// A vector at any other address is a hardware fault. So tensors that do not start on 16 bytes (a
// view x[1:], for example) take fewer lanes and more steps, down to single elements. A block has at
// least `lanes` threads.
//
// Cost: n additions and 3 n elements moved: bound by memory.
// Source: Justin Luitjens, "Increase Performance with Vectorized Memory Access", 2013.

#include <dotcu/grid.cuh>
#include <dotcu/vector.cuh>

template <typename T, int lanes>
__device__ dotcu::vector<T, lanes> sum_of(const dotcu::vector<T, lanes>& x,
                                          const dotcu::vector<T, lanes>& y) {
    dotcu::vector<T, lanes> sum;
#pragma unroll
    for (int k = 0; k < lanes; ++k) sum[k] = static_cast<T>(x[k] + y[k]);
    return sum;
}

template <typename T, int lanes, int steps, bool exact>
__global__ void fast_add(const T* a, const T* b, T* out, long long n) {
    const long long vectors = n / lanes;
    const long long rest = vectors * lanes + dotcu::thread_of_grid();
    dotcu::vector<T, 1> last_x{}, last_y{};
    if (!exact && rest < n) {
        last_x = dotcu::load<1>(a + rest);
        last_y = dotcu::load<1>(b + rest);
    }

    long long first = static_cast<long long>(blockIdx.x) * blockDim.x * steps + threadIdx.x;
    for (; exact || first < vectors; first += dotcu::threads_of_grid() * steps) {
        dotcu::vector<T, lanes> x[steps], y[steps];
#pragma unroll
        for (int k = 0; k < steps; ++k) {
            const long long v = first + k * blockDim.x;
            if (exact || v < vectors) {
                x[k] = dotcu::load<lanes>(a + v * lanes);
                y[k] = dotcu::load<lanes>(b + v * lanes);
            }
        }
#pragma unroll
        for (int k = 0; k < steps; ++k) {
            const long long v = first + k * blockDim.x;
            if (exact || v < vectors) dotcu::store(out + v * lanes, sum_of(x[k], y[k]));
        }
        if (exact) break;
    }
    if (!exact && rest < n) dotcu::store(out + rest, sum_of(last_x, last_y));
}
