// e4m3.cuh: absolute values of floats compared, and floats divided by a scale and rounded to e4m3.
#pragma once

#include <dotcu/vector.cuh>

enum e4m3 : unsigned char {};

__device__ unsigned e4m3_of(float x) {
    const float size = fminf(fabsf(x), 448.0f);
    const unsigned sign = __float_as_uint(x) >> 24 & 0x80, bits = __float_as_uint(size);
    if (size < 0x1p-6f) return sign | (__float_as_uint(size + 0x1p14f) - __float_as_uint(0x1p14f));
    return sign | (((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3)) | (x != x);
}

__device__ unsigned short e4m3_of(float low, float high) {
    unsigned short both;
#if __CUDA_ARCH__ >= 890
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
#else
    both = e4m3_of(low) | e4m3_of(high) << 8;
#endif
    return both;
}

// The larger of absolute values, as integers.
template <typename T>
struct Larger {
    static constexpr bool half = sizeof(T) == 2;
    __device__ unsigned operator()(unsigned a, unsigned b) const {
        return half ? __vmaxu2(a, b) : max(a, b);
    }
    template <int width>
    __device__ unsigned operator()(unsigned most, const dotcu::vector<T, width>& of) const {
        unsigned words[(sizeof(of) + 3) / 4] = {};
        memcpy(words, &of, sizeof(of));
        for (unsigned word : words) most = (*this)(most, word & (half ? 0x7fff7fff : 0x7fffffff));
        return most;
    }
};

struct Scale {
    float value, up, inverse, divisor;
    __device__ explicit Scale(float most) : value(most == 0 ? 1 : most / 448) {
        if (value == 0) value = 1;
        up = value < 0x1p-90f ? 0x1p64f : 1, inverse = 1 / (value * up);  // no subnormals
        divisor = inverse == 0 ? 0 : value * up;  // x / infinity has no rest
    }
    template <typename T, int width>
    __device__ void quantize(const dotcu::vector<T, width>& x, float up, e4m3* to) const {
        float y[width + 1] = {};
        for (int k = 0; k < width; ++k) {
            const float dividend = static_cast<float>(x[k]) * up, near = dividend * inverse;
            y[k] = fmaf(-fmaf(near, divisor, -dividend), inverse, near);
        }
        dotcu::vector<e4m3, width> value;
        for (int k = 0; k < width; k += 2) {
            const unsigned short both = e4m3_of(y[k], y[k + 1]);
            memcpy(&value[k], &both, width < 2 ? 1 : 2);
        }
        dotcu::store(to, value);
    }
};
