// Row sums added onto an output that torch.empty allocated.
__global__ void row_sums(const float* x, float* out, int columns) {
    int row = threadIdx.x;
#ifdef FIXED
    out[row] = 0.0f;
#endif
    for (int j = 0; j < columns; ++j) {
        out[row] += x[row * columns + j];  // FAULT: uninitialized-read
    }
}
