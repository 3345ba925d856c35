// Keeps the last `count` values and reads one more.
__global__ void last(const int* x, int* out, int count) {
    int kept[8];
    for (int j = 0; j < count; ++j) kept[j] = x[threadIdx.x + j];
#ifdef FIXED
    out[threadIdx.x] = kept[count - 1];
#else
    out[threadIdx.x] = kept[count];  // FAULT: uninitialized-read
#endif
}
