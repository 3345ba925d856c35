// A producer fills a stage of both blocks by multicast, and waits for the consumer of its own block
// alone.
#include "cluster.cuh"

__global__ void pipeline(const int* x, int* out, int n) {
    __shared__ alignas(8) unsigned long long full, empty;
    __shared__ alignas(16) int stage[32];
    unsigned t = threadIdx.x % 32;
#ifdef FIXED
    unsigned consumers = 2;
#else
    unsigned consumers = 1;
#endif
    if (threadIdx.x == 0) INIT(&full, 1);
    if (threadIdx.x == 0) INIT(&empty, rank() == 0 ? consumers : 1);
    MEET();
    for (int i = 0; i < n; ++i) {
        if (threadIdx.x == 0) {
            WAIT(&empty, i % 2 ^ 1);
            EXPECT(&full, 128);
            if (rank() == 0) MULTICAST(stage, x + 32 * i, 128, &full, 3);  // FAULT: proxy-fence
        }
        if (threadIdx.x < 32) continue;
        WAIT(&full, i % 2);
        out[(blockIdx.x * n + i) * 32 + t] = stage[31 - t];  // OTHER
        __syncwarp();
        if (t == 0) ARRIVE(&empty, rank());
        if (t == 0 && rank() == 1 && consumers == 2) ARRIVE(&empty, 0);
    }
    MEET();
}
