// The math functions of the dialect
#include "golden.cuh"

UNARY(exp, ct::exp(a))
UNARY(exp_approximate, ct::exp(a, ct::round_approximate_t{}))
UNARY(exp2, ct::exp2(a))
UNARY(exp2_flush, ct::exp2(a, Flush{}))
UNARY(log, ct::log(a))
UNARY(log2, ct::log2(a))
UNARY(sin, ct::sin(a))
UNARY(cos, ct::cos(a))
UNARY(tan, ct::tan(a))
UNARY(sinh, ct::sinh(a))
UNARY(cosh, ct::cosh(a))
UNARY(tanh, ct::tanh(a))
UNARY(tanh_approximate, ct::tanh(a, ct::round_approximate_t{}))
UNARY(sqrt, ct::sqrt(a))
UNARY(sqrt_upward, ct::sqrt(a, ct::round_toward_positive_t{}))
UNARY(sqrt_approximate, ct::sqrt(a, ct::round_approximate_t{}))
UNARY(rsqrt, ct::rsqrt(a))
UNARY(rsqrt_flush, ct::rsqrt(a, Flush{}))
UNARY(ceil, ct::ceil(a))
UNARY(floor, ct::floor(a))
BINARY(pow, ct::pow(a, b))
BINARY(atan2, ct::atan2(a, b))

template <class T>
__tile_global__ void powi(const T* x, const int* y, T* out) {
    give(out, ct::powi(mine(x), mine(y)));
}
