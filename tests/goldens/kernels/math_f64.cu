// CUDA's math library in double, one row for each function.

#define ROW(expression) out[row++ * blockDim.x + i] = expression

extern "C" __global__ void math_f64(const double* xs, const double* ys, double* out) {
    const int i = threadIdx.x;
    const double x = xs[i], y = ys[i], positive = fabs(x), inside = x * 0.1;
    int row = 0;
    ROW(exp(x));
    ROW(log(positive));
    ROW(sin(x));
    ROW(cos(x));
    ROW(atan2(x, y));
    ROW(acos(inside));
    ROW(tanh(x));
    ROW(erf(x));
    ROW(pow(positive, y));
    ROW(cbrt(x));
    ROW(sqrt(positive));
    ROW(rsqrt(positive));
    ROW(x / y);
    ROW(fmod(x, y));
    ROW(round(x));
    ROW(ldexp(x, (int)y));
}
