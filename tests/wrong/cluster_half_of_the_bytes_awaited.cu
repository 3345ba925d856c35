// Two blocks send half a tile each to both, and each awaits the bytes that it sends in place of
// all.
#include "cluster.cuh"

__global__ void halves(const int* x, int* out) {
    __shared__ alignas(8) unsigned long long full;
    __shared__ alignas(16) int tile[64];
    int t = threadIdx.x, half = 32 * rank();
#ifdef FIXED
    int bytes = 256;
#else
    int bytes = 128;
#endif
    if (t == 0) {
        INIT(&full, 1);
        EXPECT(&full, bytes);
    }
    MEET();
    if (t == 0) MULTICAST(tile + half, x + half, 128, &full, 3);  // OTHER
    WAIT(&full, 0);
    out[blockIdx.x * 64 + t] = tile[63 - t];  // FAULT: proxy-fence
    MEET();
}
