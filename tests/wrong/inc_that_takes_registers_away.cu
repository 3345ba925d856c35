// The warpgroup that multiplies has 168 registers a thread, and asks for 160 as if it had fewer.
__global__ void __launch_bounds__(384) roles(const int* x, int* out) {
    int i = threadIdx.x;
    if (i < 128) {
#ifdef FIXED
        asm volatile("setmaxnreg.dec.sync.aligned.u32 160;");
#else
        asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");  // FAULT: setmaxnreg
#endif
    }
    out[i] = x[i] + 1;
}
