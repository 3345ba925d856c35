// Halves of CUDA's own headers: arithmetic, comparisons, conversions, functions.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define ROW(expression) out[row++ * blockDim.x + i] = expression

extern "C" __global__ void math_half(const float* xs, const float* ys, float* out) {
    const int i = threadIdx.x;
    const half x = __float2half(xs[i]), y = __float2half(ys[i]);
    const __nv_bfloat16 u = __float2bfloat16(xs[i]), v = __float2bfloat16(ys[i]);
    const half2 p = __floats2half2_rn(xs[i], ys[i]), q = __half2half2(y);
    int row = 0;
    ROW(__half2float(x * y + x));
    ROW(__half2float(__hfma(x, y, y)));
    ROW(__half2float(x / y));
    ROW(__half2float(hsqrt(__habs(x))));
    ROW(__half2float(hrint(x)));
    ROW(__half2float(__hmax(x, y)) + (x < y));
    ROW(__bfloat162float(u * v - u));
    ROW(__bfloat162float(__hfma(u, v, v)));
    ROW(__bfloat162float(__hmin(u, v)) + (u >= v));
    ROW(__low2float(p * q) + __high2float(__hadd2(p, q)));
    ROW(__half2float(__float2half_rz(xs[i] * 1.0001f)));
    ROW((float)__half2int_rn(x) + __half2uint_rz(__habs(y)));
    ROW((float)__hgt2(p, q).x);
    ROW((float)__hbeq2(p, q));
}
