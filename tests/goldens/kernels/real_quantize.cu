// Rows of floats to fp8, each scaled by its largest magnitude; and to 8-bit integers.

#include <cuda_fp8.h>

extern "C" __global__ void real_quantize(const float* in, unsigned char* fp8, signed char* int8,
                                         float* scales, float* restored, int n) {
    __shared__ float warps[4];
    const float* row = in + (long long)blockIdx.x * n;
    float largest = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) largest = fmaxf(largest, fabsf(row[i]));
    for (int by = 16; by > 0; by /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, by));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = largest;
    __syncthreads();
    for (int w = 0; w < 4; ++w) largest = fmaxf(largest, warps[w]);
    const float scale = __fdiv_rn(largest, 448.0f);
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const long long at = (long long)blockIdx.x * n + i;
        const __nv_fp8_e4m3 x(__fdiv_rn(row[i], scale));
        fp8[at] = x.__x;
        restored[at] = (float)x * scale;
        int8[at] =
            (signed char)max(-127, min(127, __float2int_rn(__fdiv_rn(row[i] * 127, largest))));
    }
}
