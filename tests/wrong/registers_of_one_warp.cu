// One warp of a warpgroup gives registers away, and the others keep theirs.
__global__ void __launch_bounds__(256) roles(const int* x, int* out) {
    int i = threadIdx.x;
#ifdef FIXED
    bool gives = i >= 128;
#else
    bool gives = i / 32 == 4;
#endif
    if (gives) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");  // FAULT: setmaxnreg
    out[i] = x[i] + 1;
}
