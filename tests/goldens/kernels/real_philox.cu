// Philox 4x32-10, uniform floats from it, and normal ones by Box and Muller.
//
// Salmon and others, "Parallel Random Numbers: As Easy as 1, 2, 3" (2011).

__device__ uint4 philox(uint4 counter, uint2 key) {
    for (int round = 0; round < 10; ++round) {
        const unsigned high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
        const unsigned high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
        counter = {high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0};
        key.x += 0x9E3779B9u, key.y += 0xBB67AE85u;
    }
    return counter;
}

extern "C" __global__ void real_philox(uint4* bits, float4* uniform, float2* normal,
                                       unsigned long long seed) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const uint4 x = philox({i, 0, 7, 0}, {(unsigned)seed, (unsigned)(seed >> 32)});
    const float scale = 2.3283064e-10f;
    const float4 u = {x.x * scale, x.y * scale, x.z * scale, x.w * scale};
    bits[i] = x, uniform[i] = u;
    const float radius = sqrtf(-2 * logf(u.x + 1.1641532e-10f));
    normal[i] = {radius * sinf(6.2831853f * u.y), radius * cosf(6.2831853f * u.y)};
}
