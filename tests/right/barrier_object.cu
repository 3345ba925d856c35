// cuda::barrier: the block meets at an object in shared memory.
#include <cuda/barrier>

__global__ void reverse(const int* x, int* out) {
    using Barrier = cuda::barrier<cuda::thread_scope_block>;
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ Barrier barrier;
    __shared__ int tile[64];
    int i = threadIdx.x;
    if (i == 0) init(&barrier, 64);
    __syncthreads();
    tile[i] = x[i];
    barrier.arrive_and_wait();
    int value = tile[63 - i];
    barrier.arrive_and_wait();
    tile[(i + 1) % 64] = value;
    barrier.arrive_and_wait();
    out[i] = tile[i];
}
