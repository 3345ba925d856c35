// A struct with padding and bit-fields is shuffled word by word.
struct __align__(8) Small {
    char a;
    short b;
};  // padding after a and behind
struct Bits {
    unsigned a : 3;
    unsigned : 5;
    unsigned b : 10;
    unsigned long long c : 40;
};
struct Pair {
    Small s;
    Bits b;
    float f;
};
union Either {
    Pair p;
    int4 words[2];
};
__device__ Pair shuffle(Pair p, int lane) {
    Either e;
    e.p = p;
    for (int i = 0; i < 2; ++i) {
        e.words[i].x = __shfl_sync(~0u, e.words[i].x, lane);
        e.words[i].y = __shfl_sync(~0u, e.words[i].y, lane);
        e.words[i].z = __shfl_sync(~0u, e.words[i].z, lane);
        e.words[i].w = __shfl_sync(~0u, e.words[i].w, lane);
    }
    return e.p;
}
__global__ void swap(const int* x, int* out) {
    __shared__ Pair pairs[64];
    int t = threadIdx.x;
    Pair mine;
    mine.s.a = t;
    mine.s.b = x[t];
    mine.b.a = t;
    mine.b.b = 2 * t;
    mine.b.c = 3ull * t;
    mine.f = 0.5f * t;
    pairs[t] = mine;
    __syncthreads();
    Pair other = pairs[63 - t];
    other = shuffle(other, t ^ 5);
    memcpy(&pairs[63 - t], &other, sizeof other);
    __syncthreads();
    const Pair& p = pairs[t];
    out[t] = p.s.a + p.s.b + p.b.a + p.b.b + (int)p.b.c + (int)(2 * p.f);
}
