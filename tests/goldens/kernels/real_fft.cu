// A radix-2 FFT of 256 points in shared memory, twiddles by sincospif.

extern "C" __global__ void real_fft(const float2* in, float2* out) {
    __shared__ float2 line[256];
    const int i = threadIdx.x;
    line[__brev(i) >> 24] = in[blockIdx.x * 256 + i];
    line[__brev(i + 128) >> 24] = in[blockIdx.x * 256 + i + 128];
    for (int size = 2; size <= 256; size *= 2) {
        __syncthreads();
        const int k = i % (size / 2), a = i / (size / 2) * size + k, b = a + size / 2;
        float s, c;
        sincospif(-2.0f * k / size, &s, &c);
        const float2 x = line[a], y = line[b];
        const float2 turned = {y.x * c - y.y * s, y.x * s + y.y * c};
        line[a] = {x.x + turned.x, x.y + turned.y};
        line[b] = {x.x - turned.x, x.y - turned.y};
    }
    __syncthreads();
    out[blockIdx.x * 256 + i] = line[i];
    out[blockIdx.x * 256 + i + 128] = line[i + 128];
}
