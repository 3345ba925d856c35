// saxpy: y = a * x + y.
template <typename T>
__global__ void saxpy(T a, const T* x, T* y, long long n) {
    const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
