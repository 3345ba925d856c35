// Generic addresses: of global, shared, local and constant memory, told apart by isspacep.

typedef unsigned int u32;

__constant__ int table[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
__device__ int counters[4] = {100, 200, 300, 400};

__device__ __noinline__ u32 space(const void* p) {
    return __isGlobal(p) + 2 * __isShared(p) + 4 * __isLocal(p) + 8 * __isConstant(p);
}

extern "C" __global__ void memory_spaces(const int* in, int* out) {
    __shared__ int shared[64];
    int local[8];
    const int i = threadIdx.x;
    shared[i] = in[i] + 1;
    for (int k = 0; k < 8; ++k) local[(k + i) & 7] = in[k] - i;
    __syncthreads();

    const int* where;  // a different space for each thread of a group of four
    switch (i & 3) {
        case 0:
            where = &in[63 - i];
            break;
        case 1:
            where = &shared[63 - i];
            break;
        case 2:
            where = &local[i >> 3];
            break;
        default:
            where = &table[i >> 2];
    }
    out[i] = *where;
    out[64 + i] = space(where);
    out[128 + i] = table[in[i] & 15] + counters[i & 3];
    out[192 + i] = local[in[i] & 7];
}
