// Four threads write the bytes of one word, and one thread reads the word.
union Word {
    unsigned char bytes[4];
    unsigned all;
};

__global__ void pack(const unsigned char* x, unsigned* out) {
    __shared__ Word words[16];
    int i = threadIdx.x;
    words[i / 4].bytes[i % 4] = x[i];
    __syncthreads();
    if (i < 16) out[i] = words[i].all;
}
