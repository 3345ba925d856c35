// A lock for each thread, also of one warp: whoever has it does its work within the loop.
__global__ void append(int* lock, int* count, int* list) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool is_done = false;
    while (!is_done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            list[*count] = i;
            *count = *count + 1;
            __threadfence();
            atomicExch(lock, 0);
            is_done = true;
        }
    }
}
