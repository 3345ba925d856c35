// Blocks draw tickets and change the data in their turn.
__global__ void update(int* lock, int* data, int n) {
    int t = threadIdx.x;
    __shared__ int mine;
    if (t == 0) {
        mine = atomicAdd(&lock[0], 1);
        while (*(volatile int*)&lock[1] != mine) {
        }
        __threadfence();
    }
    __syncthreads();
    data[t] = data[(t + 1) % 64 == 0 ? t : t] + 1;
    int other = data[64 + t];
    data[64 + t] = other * 2 + 1;
    __syncthreads();
    if (t == 0) {
        __threadfence();
        *(volatile int*)&lock[1] = mine + 1;
    }
}
