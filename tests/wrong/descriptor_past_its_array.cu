// The stride of A's descriptor is that of another layout: its last rows are taken from the next
// array.
#include "wgmma.cuh"

__global__ void product(const half* a, const half* b, float* out) {
    __shared__ alignas(128) half left[64 * 16], right[64 * 16];
    fill<64>(left, a);
    for (int i = threadIdx.x; i < 64 * 16; i += 128)
        right[place(i / 16, i % 16)] = i < 128 ? b[i] : half(0);
    PROXY_FENCE;
    __syncthreads();
#ifdef FIXED
    unsigned long long matrix = descriptor(left, 128, 256);
#else
    unsigned long long matrix = descriptor(left, 128, 512);
#endif
    float d[4] = {};
    FENCE;
    MULTIPLY(d, matrix, descriptor(right));  // FAULT: wgmma
    COMMIT;
    WAIT(0);
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}
