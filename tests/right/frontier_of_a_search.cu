// A breadth-first search, whose queues change roles at a grid barrier made by hand.
__device__ void barrier(int* b, int blocks, int round) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(b, 1);
        while (*(volatile int*)b < blocks * round) {
        }
        __threadfence();
    }
    __syncthreads();
}
__global__ void search(int* level, int* q0, int* q1, int* counts, int* b, int n) {
    int round = 0, *from = q0, *to = q1;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        from[0] = 0;
        counts[0] = 1;
        level[0] = 1;
    }
    barrier(b, gridDim.x, ++round);
    for (int l = 2;; ++l) {
        int size = *(volatile int*)&counts[l - 2];
        if (!size) break;
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x) {
            int v = from[i];
            for (int c = 2 * v + 1; c <= 2 * v + 2 && c < n; ++c)
                if (atomicCAS(&level[c], 0, l) == 0) to[atomicAdd(&counts[l - 1], 1)] = c;
        }
        barrier(b, gridDim.x, ++round);
        int* t = from;
        from = to;
        to = t;
    }
}
