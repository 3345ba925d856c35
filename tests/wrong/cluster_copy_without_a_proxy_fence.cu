// A bulk copy into another block reads what ordinary stores wrote, without the fence between the
// proxies.
#include "cluster.cuh"

__global__ void swap(const int* x, int* out) {
    __shared__ alignas(8) unsigned long long full;
    __shared__ alignas(16) int given[64], taken[64];
    int t = threadIdx.x, other = rank() ^ 1;
    given[t] = x[blockIdx.x * 64 + t];  // OTHER
    if (t == 0) {
        INIT(&full, 1);
        EXPECT(&full, 256);
    }
#ifdef FIXED
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    MEET();
    if (t == 0) COPY(far(taken, other), given, 256, far(&full, other));  // FAULT: proxy-fence
    WAIT(&full, 0);
    out[blockIdx.x * 64 + t] = taken[63 - t];
    MEET();
}
