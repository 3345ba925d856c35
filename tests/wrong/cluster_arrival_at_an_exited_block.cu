// A consumer releases the last stage by an arrival at the producer's block, which may have ended by
// then.
#include "cluster.cuh"

__global__ void deliver(const int* x, int* out, int n) {
    __shared__ alignas(8) unsigned long long full, empty;
    __shared__ int box[32];
    int t = threadIdx.x;
    if (t == 0) INIT(&full, 32);
    if (t == 0) INIT(&empty, 32);
    MEET();
    for (int i = 0; i < n; ++i) {
        if (rank() == 0) {
            WAIT(&empty, i % 2 ^ 1);
            asm volatile("st.shared::cluster.s32 [%0], %1;" ::"r"(far(box + t, 1)),
                         "r"(x[32 * i + t])
                         : "memory");
            ARRIVE(&full, 1);
        } else {
            WAIT(&full, i % 2);
            int total = 0;
#pragma unroll 1
            for (int k = 0; k < 400; ++k) total += box[(t + k) % 32];
            out[32 * i + t] = total;
            __syncwarp();
            ARRIVE(&empty, 0);  // FAULT: exited-block
        }
    }
#ifdef FIXED
    if (rank() == 0) WAIT(&empty, n % 2 ^ 1);
#endif
}
