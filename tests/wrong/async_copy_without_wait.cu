// cp.async fills a tile; the barrier alone does not wait for it.
__global__ void reverse(const float* x, float* out) {
    __shared__ alignas(16) float tile[64];
    int i = threadIdx.x;
    unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&tile[i]));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + i));  // OTHER
#ifdef FIXED
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    __syncthreads();
    out[i] = tile[63 - i];  // FAULT: race
}
