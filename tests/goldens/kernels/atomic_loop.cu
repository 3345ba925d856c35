// Compare-and-swap loops: the maximum of floats, and a product modulo a prime; exact in any order.

__device__ void atomic_max(float* cell, float value) {
    int* bits = reinterpret_cast<int*>(cell);
    int old = *bits;
    while (__int_as_float(old) < value) {
        const int expected = old;
        old = atomicCAS(bits, expected, __float_as_int(value));
        if (old == expected) break;
    }
}

__device__ void multiply(unsigned long long* cell, unsigned by) {
    unsigned long long old = atomicAdd(cell, 0ull), expected;
    do {
        expected = old;
        old = atomicCAS(cell, expected, expected * by % 1000003);
    } while (old != expected);
}

extern "C" __global__ void atomic_loop(const float* in, float* largest,
                                       unsigned long long* product) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomic_max(&largest[i % 3], in[i]);
    multiply(product, i % 1000 + 1);
}
