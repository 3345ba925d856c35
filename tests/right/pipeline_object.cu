// cuda::pipeline with two stages, which all threads fill and use.
#include <cuda/pipeline>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void stream(const int* x, int* out, int n) {
    constexpr int stages = 2;
    __shared__ int s[stages][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    for (int c = 0, f = 0; c < n; ++c) {
        for (; f < n && f < c + stages; ++f) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, s[f % stages], x + f * 64, 64 * sizeof(int), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        out[c * 64 + threadIdx.x] = s[c % stages][63 - threadIdx.x];
        pipe.consumer_release();
    }
}
