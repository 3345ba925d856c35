// cp.async brings the next tile while this one is used; one group is in flight.
__device__ void copy_async(float* to, const float* from) {
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}

__global__ void tile_sums(const float* x, float* out, int tiles) {
    __shared__ alignas(16) float buffer[2][128];
    int i = threadIdx.x;
    copy_async(&buffer[0][4 * i], x + 4 * i);
    asm volatile("cp.async.commit_group;" ::: "memory");
    float sum = 0;
    for (int t = 0; t < tiles; ++t) {
        if (t + 1 < tiles) copy_async(&buffer[(t + 1) % 2][4 * i], x + (t + 1) * 128 + 4 * i);
        asm volatile("cp.async.commit_group;" ::: "memory");
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        for (int j = 0; j < 4; ++j) sum += buffer[t % 2][(4 * i + 5 * j) % 128];
        __syncthreads();
    }
    out[i] = sum;
}
