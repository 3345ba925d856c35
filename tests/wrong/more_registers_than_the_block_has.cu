// Two warpgroups take 240 registers a thread, and the third gives too few away.
__global__ void __launch_bounds__(384) roles(const int* x, int* out) {
    int i = blockIdx.x * 384 + threadIdx.x;
    if (threadIdx.x >= 256) {
#ifdef FIXED
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
#else
        asm volatile("setmaxnreg.dec.sync.aligned.u32 80;");
#endif
        out[i] = -x[i];
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");  // FAULT: setmaxnreg
        out[i] = 2 * x[i];
    }
}
