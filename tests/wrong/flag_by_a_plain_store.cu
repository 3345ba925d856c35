// One warp tells another that the data is there, through a flag that is neither volatile nor
// atomic.
__global__ void hand_over(const int* x, int* out) {
    __shared__ int data[32];
    __shared__ int flag;
    int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        data[lane] = 2 * x[lane];
        __threadfence_block();
        __syncwarp();
#ifdef FIXED
        if (lane == 0) *static_cast<volatile int*>(&flag) = 1;
#else
        if (lane == 0) flag = 1;  // OTHER
#endif
    } else {
        while (*static_cast<volatile int*>(&flag) == 0) {  // FAULT: race
        }
        __threadfence_block();
        out[lane] = data[31 - lane];  // THEN
    }
}
