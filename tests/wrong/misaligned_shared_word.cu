// Two shorts of a shared array as one int, beginning at an odd short.
__global__ void pair_up(const short* x, int* out) {
    __shared__ alignas(4) short tile[66];
    int i = threadIdx.x;
    tile[2 * i] = x[2 * i];
    tile[2 * i + 1] = x[2 * i + 1];
    if (i == 0) tile[64] = tile[65] = 0;
    __syncthreads();
#ifdef FIXED
    int low = static_cast<unsigned short>(tile[2 * i + 1]);
    out[i] = low | tile[2 * i + 2] << 16;
#else
    out[i] = *reinterpret_cast<const int*>(&tile[2 * i + 1]);  // FAULT: misaligned
#endif
}
