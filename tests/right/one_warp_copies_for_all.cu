// One warp brings the next tile by cp.async, and all meet once for each tile.
#include <cuda_pipeline.h>
__global__ void stream(const int* x, int* out, int tiles) {
    __shared__ int st[2][128];
    int t = threadIdx.x;
    auto fetch = [&](int i) {
        if (t < 32) {
            __pipeline_memcpy_async(&st[i % 2][t * 4], &x[i * 128 + t * 4], 16);
            __pipeline_commit();
        }
    };
    fetch(0);
    for (int i = 0; i < tiles; ++i) {
        if (t < 32) __pipeline_wait_prior(0);
        __syncthreads();
        if (i + 1 < tiles) fetch(i + 1);
        out[i * 128 + t] = st[i % 2][127 - t];
    }
}
