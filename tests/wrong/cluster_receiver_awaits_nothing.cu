// A store arrives in another block, which reads it behind a barrier and does not wait for its
// mbarrier.
#include "cluster.cuh"

__global__ void send(const int* x, int* out) {
    __shared__ alignas(8) unsigned long long full;
    __shared__ int box[32];
    int t = threadIdx.x;
    box[t] = -1;
    if (t == 0) {
        INIT(&full, 1);
        EXPECT(&full, 128);
    }
    MEET();
    STORE_ASYNC(far(box + t, rank() ^ 1), x[blockIdx.x * 32 + t], far(&full, rank() ^ 1));  // OTHER
#ifdef FIXED
    WAIT(&full, 0);
#else
    MEET();
#endif
    out[blockIdx.x * 32 + t] = box[31 - t];  // FAULT: race
    MEET();
}
