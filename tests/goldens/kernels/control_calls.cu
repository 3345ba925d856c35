// Calls: a function that is not inlined, a recursive one, and pointers to functions.

typedef int (*Function)(int, int);

__device__ __noinline__ int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }
__device__ __noinline__ int mean(int a, int b) { return (a + b) / 2; }
__device__ __noinline__ int mixed(int a, int b) { return (a ^ b) + 7; }

__device__ Function functions[3] = {gcd, mean, mixed};

extern "C" __global__ void control_calls(const int* a, const int* b, int* out) {
    const int i = threadIdx.x;
    out[i] = gcd(a[i], b[i]);
    out[blockDim.x + i] = functions[i % 3](a[i], b[i]);
}
