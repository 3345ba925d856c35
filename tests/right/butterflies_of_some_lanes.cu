// Butterflies and matches of the lanes that have work, of half a warp, and of every other lane.
__global__ void fold(const int* x, int* out, int n) {
    int t = threadIdx.x, v = t < n ? x[t] : 0;
    unsigned mask = __ballot_sync(~0u, t < n);
    if (t < n) {
        for (int d = 1; d < 8; d *= 2) v += __shfl_xor_sync(mask, v, d);
        out[t] = v + __popc(__match_any_sync(mask, x[t] & 3));
    }
    unsigned half = 0xffffu << (t & 16);
    int w = x[t];
    for (int d = 8; d; d /= 2) w = max(w, __shfl_xor_sync(half, w, d));
    out[32 + t] = w;
    if (t & 1)
        out[64 + t] = __shfl_sync(0xaaaaaaaau, w + t, (t + 2) % 32);
    else
        out[64 + t] = __shfl_sync(0x55555555u, w - t, (t + 2) % 32);
}
