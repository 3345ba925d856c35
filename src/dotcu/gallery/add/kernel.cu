// add: a sum, element by element.
//
//     add           out[i] = a[i] + b[i]     a, b, out: n contiguous elements
//     add_number    out[i] = a[i] + value    a, out: n contiguous elements
//
// Idea: a grid-stride loop. The grid is as large as the GPU can hold at once, and a thread takes
// every element that is a whole number of grids after its first. Neighbouring threads touch
// neighbouring elements, any n works with any grid, and no thread starts just to find that there
// is nothing to do.
//
// Cost: n additions and 3 n elements moved (2 n for add_number): bound by memory.
// Source: Mark Harris, "CUDA Pro Tip: Write Flexible Kernels with Grid-Stride Loops", 2013.

// This thread's place among all threads of the grid, and how many there are.
__device__ long long thread_of_grid() {
    return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ long long threads_of_grid() { return static_cast<long long>(gridDim.x) * blockDim.x; }

template <typename T>
__global__ void add(const T* a, const T* b, T* out, long long n) {
    for (long long i = thread_of_grid(); i < n; i += threads_of_grid()) {
        out[i] = static_cast<T>(a[i] + b[i]);
    }
}

// The number keeps a wider type than the elements where they are narrow, as torch has it: half
// types add in float, integers in 64 bits.
template <typename T, typename Wide>
__global__ void add_number(const T* a, Wide value, T* out, long long n) {
    for (long long i = thread_of_grid(); i < n; i += threads_of_grid()) {
        out[i] = static_cast<T>(static_cast<Wide>(a[i]) + value);
    }
}
