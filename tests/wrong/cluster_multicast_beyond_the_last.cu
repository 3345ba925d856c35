// A multicast whose mask names a block that the cluster does not have.
#include "cluster.cuh"

__global__ void spread(const int* x, int* out) {
    __shared__ alignas(8) unsigned long long full;
    __shared__ alignas(16) int tile[32];
    int t = threadIdx.x;
#ifdef FIXED
    int mask = 3;
#else
    int mask = 7;
#endif
    if (t == 0) {
        INIT(&full, 1);
        EXPECT(&full, 128);
    }
    MEET();
    if (t == 0 && rank() == 1) MULTICAST(tile, x, 128, &full, mask);  // FAULT: out-of-bounds
    WAIT(&full, 0);
    out[blockIdx.x * 32 + t] = tile[31 - t];
    MEET();
}
