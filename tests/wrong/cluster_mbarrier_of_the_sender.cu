// A store into another block that is to complete an mbarrier of the block it comes from.
#include "cluster.cuh"

__global__ void send(const int* x, int* out) {
    __shared__ alignas(8) unsigned long long full;
    __shared__ int box[32];
    int t = threadIdx.x, other = rank() ^ 1;
    if (t == 0) {
        INIT(&full, 1);
        EXPECT(&full, 128);
    }
    MEET();
#ifdef FIXED
    unsigned at = far(&full, other);
#else
    unsigned at = near(&full);
#endif
    STORE_ASYNC(far(box + t, other), x[blockIdx.x * 32 + t], at);  // FAULT: barrier
#ifdef FIXED
    WAIT(&full, 0);
    out[blockIdx.x * 32 + t] = box[31 - t];
#endif
    MEET();
}
