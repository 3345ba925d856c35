// A pipeline of four stages: cp.async groups of CUDA's own primitives, summed while the next
// arrive.

#include <cuda_pipeline_primitives.h>

constexpr int stages = 4;

extern "C" __global__ void async_pipeline(const float4* in, float* out, int tiles) {
    __shared__ float4 buffers[stages][64];
    const int i = threadIdx.x;
    for (int t = 0; t < stages - 1; ++t) {
        __pipeline_memcpy_async(&buffers[t][i], &in[t * 64 + i], 16);
        __pipeline_commit();
    }
    float sum = 0;
    for (int t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(stages - 2);
        __syncthreads();
        const float4 x = buffers[t % stages][63 - i];
        sum += x.x * 2 + x.y * 3 + x.z * 5 + x.w * 7;
        const int next = t + stages - 1;
        if (next < tiles)
            __pipeline_memcpy_async(&buffers[next % stages][i], &in[next * 64 + i], 16);
        __pipeline_commit();
    }
    out[i] = sum;
}
