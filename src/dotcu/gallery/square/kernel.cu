// square: out[i] = x[i] * x[i].
//
//     x, out: n contiguous elements
//
// Idea: a grid-stride loop; see the kernel of add.
//
// Cost: n multiplications and 2 n elements moved: bound by memory.

template <typename T>
__global__ void square(const T* x, T* out, long long n) {
    const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;

    for (long long i = first; i < n; i += threads) {
        out[i] = static_cast<T>(x[i] * x[i]);
    }
}
