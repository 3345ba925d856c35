// One warp waits at the cluster's barrier without having arrived there.
__global__ void half(const int* x, int* out) {
    __shared__ int box;
    int t = threadIdx.x;
    if (t == 0) box = x[blockIdx.x];
#ifndef FIXED
    if (t < 32)
#endif
        asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");  // FAULT: barrier
    __syncthreads();
    out[blockIdx.x * 64 + t] = box + t;
}
