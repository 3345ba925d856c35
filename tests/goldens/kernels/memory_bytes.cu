// Shared memory written as words and read as bytes, and the other way round: endianness.

extern "C" __global__ void memory_bytes(const unsigned* in, unsigned* out) {
    extern __shared__ unsigned words[];
    unsigned char* bytes = reinterpret_cast<unsigned char*>(words);
    const int i = threadIdx.x, n = blockDim.x;
    words[i] = in[i];
    __syncthreads();
    const unsigned reversed =
        bytes[4 * i] << 24 | bytes[4 * i + 1] << 16 | bytes[4 * i + 2] << 8 | bytes[4 * i + 3];
    const unsigned char column = bytes[i];
    __syncthreads();
    out[i] = reversed;
    bytes[4 * n - 1 - i] = column;
    __syncthreads();
    reinterpret_cast<unsigned short*>(words)[i] ^= (unsigned short)i;
    __syncthreads();
    out[n + i] = i < n / 2 ? words[i] : words[n / 2 + i / 2];
}
