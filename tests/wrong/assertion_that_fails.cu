// Asserts what the input does not hold to.
#include <assert.h>

__global__ void inverse(const float* x, float* out) {
    int i = threadIdx.x;
#ifdef FIXED
    out[i] = x[i] != 0 ? 1 / x[i] : 0;
#else
    assert(x[i] != 0);  // FAULT: trap
    out[i] = 1 / x[i];
#endif
}
