// A mean in one launch: the block that finishes last adds up what the others left.

extern "C" __global__ void real_last_block(const float* in, float* partial, unsigned* count,
                                           float* mean, int n) {
    __shared__ float line[128];
    __shared__ bool last;
    const int i = threadIdx.x;
    float sum = 0;
    for (int k = blockIdx.x * blockDim.x + i; k < n; k += gridDim.x * blockDim.x) sum += in[k];
    line[i] = sum;
    for (int by = blockDim.x / 2; by > 0; by /= 2) {
        __syncthreads();
        if (i < by) line[i] += line[i + by];
    }
    if (i == 0) {
        partial[blockIdx.x] = line[0];
        __threadfence();
        last = atomicAdd(count, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && i == 0) {
        __threadfence();
        float total = 0;
        for (int b = 0; b < gridDim.x; ++b) total += __ldcg(&partial[b]);
        *mean = total / n;
    }
}
