// Two warps fill an 8 x 8 tile of halves, one warp loads it as a matrix fragment at once.
// An asm statement of several lines has the line of its inputs.
__global__ void fragment(const unsigned* x, unsigned* out) {
    __shared__ alignas(16) unsigned tile[32];
    int i = threadIdx.x;
    if (i >= 16 && i < 48) tile[i - 16] = x[i - 16];  // OTHER
#ifdef FIXED
    __syncthreads();
#endif
    if (i < 32) {
        unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(&tile[4 * (i % 8)]));
        unsigned r;
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                     : "=r"(r)
                     : "r"(from)  // FAULT: race
                     : "memory");
        out[i] = r;
    }
}
