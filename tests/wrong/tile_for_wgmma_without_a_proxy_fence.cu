// Ordinary stores fill the tiles, and nothing makes them visible to wgmma.
#include "wgmma.cuh"

__global__ void product(const half* a, const half* b, float* out) {
    __shared__ alignas(128) half left[64 * 16], right[8 * 16];
    int t = threadIdx.x;
    for (int i = t; i < 8 * 16; i += 128) right[place(i / 16, i % 16)] = b[i];
    PROXY_FENCE;
    for (int i = t; i < 64 * 16; i += 128) {
        left[place(i / 16, i % 16)] = a[i];  // OTHER
    }
#ifdef FIXED
    PROXY_FENCE;
#endif
    __syncthreads();
    float d[4] = {};
    FENCE;
    MULTIPLY(d, descriptor(left), descriptor(right));  // FAULT: proxy-fence
    COMMIT;
    WAIT(0);
    for (int i = 0; i < 4; ++i) out[4 * t + i] = d[i];
}
