// CRC-32 of lines of bytes by a table that the block makes for itself.

extern "C" __global__ void real_crc(const unsigned char* in, unsigned* out, int length) {
    __shared__ unsigned table[256];
    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) {
        unsigned x = i;
        for (int bit = 0; bit < 8; ++bit) x = x & 1 ? x >> 1 ^ 0xEDB88320u : x >> 1;
        table[i] = x;
    }
    __syncthreads();
    const unsigned char* line = in + threadIdx.x * length;
    unsigned crc = 0xffffffffu;
    for (int i = 0; i < length - (int)threadIdx.x % 7; ++i)
        crc = table[(crc ^ line[i]) & 0xff] ^ crc >> 8;
    out[threadIdx.x] = ~crc;
}
