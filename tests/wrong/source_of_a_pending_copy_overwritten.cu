#include <cuda_pipeline.h>

// A thread overwrites what another one still copies: a barrier does not end the copy.
__global__ void reverse(int* data, int* out) {
    __shared__ int tile[64];
    int i = threadIdx.x;
    __pipeline_memcpy_async(&tile[i], &data[i], 4);  // FAULT: race
    __pipeline_commit();
#ifdef FIXED
    __pipeline_wait_prior(0);
    __syncthreads();
    data[63 - i] = -1;
#else
    __syncthreads();
    data[63 - i] = -1;  // OTHER
    __pipeline_wait_prior(0);
    __syncthreads();
#endif
    out[i] = tile[63 - i];
}
