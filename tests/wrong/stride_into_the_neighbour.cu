// Adds two halves of one allocation; the pitch is that of the whole, so a runs into b.
__global__ void add_halves(const int* a, const int* b, int* out, int rows, int columns) {
    int row = threadIdx.y;
    int column = threadIdx.x;
#ifdef FIXED
    int pitch = columns;
#else
    int pitch = 2 * columns;
#endif
    int i = row * columns + column;
    int element = a[row * pitch + column];  // FAULT: out-of-bounds
    out[i] = element + b[i];
}
