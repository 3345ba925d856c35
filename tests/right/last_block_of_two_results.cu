// The last block reduces two results at once; its counter wraps round for the next launch.
__device__ unsigned counter = 0;
__device__ float2 part[64];
__global__ void reduce(const float* x, float* out, int n) {
    __shared__ float2 sm[64];
    __shared__ bool last;
    int t = threadIdx.x;
    float2 v = {0, -1e30f};
    for (int i = blockIdx.x * 64 + t; i < n; i += gridDim.x * 64) {
        v.x += x[i];
        v.y = fmaxf(v.y, x[i]);
    }
    sm[t] = v;
    for (int h = 32; h; h /= 2) {
        __syncthreads();
        if (t < h) {
            sm[t].x += sm[t + h].x;
            sm[t].y = fmaxf(sm[t].y, sm[t + h].y);
        }
    }
    if (t == 0) {
        part[blockIdx.x] = sm[0];
        __threadfence();
        last = atomicInc(&counter, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    if (t < 32) {
        float2 v = {0, -1e30f};
        for (int b = t; b < gridDim.x; b += 32) {
            float2 p = part[b];
            v.x += p.x;
            v.y = fmaxf(v.y, p.y);
        }
        for (int d = 16; d; d /= 2) {
            v.x += __shfl_down_sync(~0u, v.x, d);
            v.y = fmaxf(v.y, __shfl_down_sync(~0u, v.y, d));
        }
        if (t == 0) {
            out[0] = v.x;
            out[1] = v.y;
        }
    }
}
