// The functions that --use_fast_math makes fast, one row for each.

#define ROW(expression) out[row++ * blockDim.x + i] = expression

extern "C" __global__ void math_fast(const float* xs, const float* ys, float* out) {
    const int i = threadIdx.x;
    const float x = xs[i], y = ys[i];
    const float positive = fabsf(x);
    int row = 0;
    ROW(expf(x));
    ROW(exp10f(x));
    ROW(logf(positive));
    ROW(log2f(positive));
    ROW(log10f(positive));
    ROW(sinf(x));
    ROW(cosf(x));
    ROW(tanf(x * 0.1f));
    ROW(powf(positive, y));
    ROW(x / y);
    ROW(1 / y);
    ROW(sqrtf(positive));
    ROW(rsqrtf(positive));
    ROW(x * 1e-39f);  // subnormals are flushed
    ROW(fmaf(x, y, positive));
    ROW(fmaxf(x, y));
    ROW(floorf(x));
}
