// One warp fills a box, and its first lane says so, perhaps before the other lanes have written.
__global__ void deliver(const int* x, int* out) {
    __shared__ int box[32], full;
    int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) full = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        box[lane] = x[lane];  // OTHER
        __threadfence_block();
#ifdef FIXED
        __syncwarp();
#endif
        if (lane == 0) atomicExch(&full, 1);
    } else {
        while (atomicAdd(&full, 0) == 0) {
        }
        __threadfence_block();
        out[lane] = box[31 - lane];  // FAULT: race
    }
}
