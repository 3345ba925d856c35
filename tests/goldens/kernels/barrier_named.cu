// Named barriers: warps that produce and warps that consume, through bar.sync and bar.arrive.

__device__ void sync(int id) { asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory"); }
__device__ void arrive(int id) { asm volatile("bar.arrive %0, 128;" ::"r"(id) : "memory"); }

// Barriers 1 and 2: a buffer is full. 3 and 4: it is empty.
extern "C" __global__ void barrier_named(const int* in, int* out, int tiles) {
    __shared__ int buffers[2][64];
    const int i = threadIdx.x & 63;
    if (threadIdx.x < 64) {
        for (int t = 0; t < tiles; ++t) {
            sync(3 + t % 2);
            buffers[t % 2][i] = in[t * 64 + i] * 3;
            __threadfence_block();
            arrive(1 + t % 2);
        }
    } else {
        arrive(3);
        arrive(4);
        for (int t = 0; t < tiles; ++t) {
            sync(1 + t % 2);
            out[t * 64 + i] = buffers[t % 2][63 - i];
            if (t + 2 < tiles) arrive(3 + t % 2);
        }
    }
}
