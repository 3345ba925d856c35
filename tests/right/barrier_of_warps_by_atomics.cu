// Warps meet at a barrier made of two atomics, whose sense alternates.
__global__ void fold(const int* x, int* out) {
    __shared__ int count, sense, data[96];
    int t = threadIdx.x, lane = t % 32;
    if (t == 0) {
        count = 0;
        sense = 0;
    }
    __syncthreads();
    int mine = 0, v = x[t];
    for (int r = 0; r < 4; ++r) {
        data[t] = v;
        mine ^= 1;
        __syncwarp();
        if (lane == 0) {
            __threadfence_block();
            if (atomicAdd(&count, 1) == 2) {
                count = 0;
                __threadfence_block();
                atomicExch(&sense, mine);
            } else
                while (atomicAdd(&sense, 0) != mine) {
                }
            __threadfence_block();
        }
        __syncwarp();
        v += data[95 - t];
        __syncthreads();
    }
    out[t] = v;
}
