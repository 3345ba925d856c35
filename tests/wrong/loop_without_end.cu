// Newton's iteration for a square root that stops at equality, which it need not reach.
__global__ void root(const unsigned* x, unsigned* out) {
    unsigned a = x[threadIdx.x];
    unsigned r = a;
#ifdef FIXED
    while (r > a / r) r = (r + a / r) / 2;
#else
    while (r * r != a) r = (r + a / r) / 2;  // FAULT: step-limit
#endif
    out[threadIdx.x] = r;
}
