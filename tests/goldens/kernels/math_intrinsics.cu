// The fast intrinsics, and those with a rounding mode in their name.

#define ROW(expression) out[row++ * blockDim.x + i] = expression

extern "C" __global__ void math_intrinsics(const float* xs, const float* ys, float* out) {
    const int i = threadIdx.x;
    const float x = xs[i], y = ys[i], positive = fabsf(x);
    int row = 0;
    ROW(__expf(x));
    ROW(__logf(positive));
    ROW(__log2f(positive));
    ROW(__log10f(positive));
    ROW(__sinf(x));
    ROW(__cosf(x));
    ROW(__fdividef(x, y));
    ROW(__frsqrt_rn(positive));
    ROW(__saturatef(x));
    ROW(__fadd_ru(x, y));
    ROW(__fmul_rd(x, y));
    ROW(__fdiv_rz(x, y));
    ROW(__fsqrt_ru(positive));
    ROW(__frcp_rd(y));
    ROW(__fmaf_rz(x, y, positive));
    ROW((float)__float2int_rd(x) + __float2uint_ru(positive) + __float2ll_rn(y));
    ROW(__int2float_rz(__float_as_int(x)));
    ROW(__int_as_float(__byte_perm(__float_as_int(x), __float_as_int(y), 0x7610) & 0xbf7fffff));
    ROW((float)(__clz(__float_as_int(x)) + __ffs(__float_as_int(y)) + __popc(__float_as_int(x))));
    ROW((float)__mulhi(__float_as_int(x), __float_as_int(y)));
    ROW((float)__sad(__float_as_int(x), __float_as_int(y), 3u));
}
