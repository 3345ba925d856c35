// The blocks of a tile add their parts in turn, by a semaphore as CUTLASS has it.
__global__ void add(const float* x, float* out, int* lock, int parts) {
    int t = threadIdx.x, part = blockIdx.y, tile = blockIdx.x;
    float v = x[(part * gridDim.x + tile) * 64 + t];
    int state = 0;
    if (t == 0) {
        do {
            asm volatile("ld.global.acquire.gpu.b32 %0, [%1];"
                         : "=r"(state)
                         : "l"(lock + tile)
                         : "memory");
        } while (state != part);
    }
    __syncthreads();
    if (part) v += out[tile * 64 + t];
    out[tile * 64 + t] = v;
    __syncthreads();
    if (t == 0) {
        int nextpart = part + 1 == parts ? 0 : part + 1;
        asm volatile("st.global.release.gpu.b32 [%0], %1;" ::"l"(lock + tile), "r"(nextpart)
                     : "memory");
    }
}
