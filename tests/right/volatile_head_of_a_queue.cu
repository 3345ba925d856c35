// One warp hands words to another through a ring: both read the other's volatile counter, which
// only grows.
__global__ void pass(const int* x, int* out, int n) {
    __shared__ int ring[4];
    __shared__ volatile int head, tail;
    if (threadIdx.x == 0) head = tail = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 0; i < n; ++i) {
            while (i - tail >= 4) {
            }
            __threadfence_block();
            ring[i % 4] = x[i];
            __threadfence_block();
            head = i + 1;
        }
    } else if (threadIdx.x == 32) {
        for (int i = 0; i < n; ++i) {
            while (head <= i) {
            }
            __threadfence_block();
            out[i] = ring[i % 4];
            __threadfence_block();
            tail = i + 1;
        }
    }
}
