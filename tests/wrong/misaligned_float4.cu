// Four floats at a time, from an odd start: the address is no multiple of 16 bytes.
__global__ void scale(const float* x, float4* out, int start) {
    int i = threadIdx.x;
#ifdef FIXED
    const float* p = x + start + 4 * i;
    float4 v = make_float4(p[0], p[1], p[2], p[3]);
#else
    float4 v = *reinterpret_cast<const float4*>(x + start + 4 * i);  // FAULT: misaligned
#endif
    out[i] = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
}
