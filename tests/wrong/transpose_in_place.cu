// Transposes a matrix onto itself, each thread one element.
__global__ void transpose(float* x, int n) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int column = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
    if (row < column) {
        float upper = x[row * n + column];
        x[row * n + column] = x[column * n + row];
        x[column * n + row] = upper;
    }
#else
    float value = x[row * n + column];  // OTHER
    x[column * n + row] = value;        // FAULT: race
#endif
}
