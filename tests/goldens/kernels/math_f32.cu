// CUDA's math library in float, one row for each function.

#define ROW(expression) out[row++ * blockDim.x + i] = expression

extern "C" __global__ void math_f32(const float* xs, const float* ys, float* out) {
    const int i = threadIdx.x;
    const float x = xs[i], y = ys[i];
    const float positive = fabsf(x);
    const float inside = x * 0.1f;
    int row = 0;
    ROW(expf(x));
    ROW(exp2f(x));
    ROW(exp10f(x));
    ROW(expm1f(x));
    ROW(logf(positive));
    ROW(log2f(positive));
    ROW(log10f(positive));
    ROW(log1pf(positive));
    ROW(sinf(x));
    ROW(cosf(x));
    ROW(tanf(inside));
    ROW(asinf(inside));
    ROW(acosf(inside));
    ROW(atanf(x));
    ROW(atan2f(x, y));
    ROW(sinhf(x));
    ROW(coshf(x));
    ROW(tanhf(x));
    ROW(erff(x));
    ROW(erfcf(x));
    ROW(tgammaf(positive));
    ROW(lgammaf(positive));
    ROW(powf(positive, y));
    ROW(cbrtf(x));
    ROW(hypotf(x, y));
    ROW(sqrtf(positive));
    ROW(rsqrtf(positive));
    ROW(x / y);
    ROW(sinpif(x));
    ROW(cospif(x));
    ROW(normcdff(x));
    ROW(fmodf(x, y));
    ROW(floorf(x));
    ROW(rintf(x));
    ROW(roundf(x));
    ROW(truncf(x));
    ROW(ldexpf(x, (int)y));
    ROW(nextafterf(x, y));
    ROW(fdimf(x, y));
    ROW(fmaf(x, y, positive));
    ROW(fmaxf(x, y));
    ROW(remainderf(x, y));
}
