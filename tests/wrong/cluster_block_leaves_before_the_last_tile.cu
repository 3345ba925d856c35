// One block reports each tile to the other, which leaves without waiting for all of them.
#include "cluster.cuh"

__global__ void tiles(const int* x, int* out, int n) {
    __shared__ alignas(8) unsigned long long done;
    int t = threadIdx.x;
    if (t == 0) INIT(&done, 32 * n);
    MEET();
    if (rank() == 1) {
#pragma unroll 1
        for (int i = 0; i < n; ++i) {
            out[i * 32 + t] = x[i * 32 + 31 - t];
            ARRIVE(&done, 0);  // FAULT: exited-block
        }
    } else {
#ifdef FIXED
        WAIT(&done, 0);
#endif
    }
}
