// A transpose by way of a tile that is one column wider than it needs to be.
__global__ void transpose(const float* x, float* out, int n) {
    __shared__ float tile[16][17];
    int column = blockIdx.x * 16 + threadIdx.x;
    int row = blockIdx.y * 16 + threadIdx.y;
    if (row < n && column < n) tile[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    column = blockIdx.y * 16 + threadIdx.x;
    row = blockIdx.x * 16 + threadIdx.y;
    if (row < n && column < n) out[row * n + column] = tile[threadIdx.x][threadIdx.y];
}
