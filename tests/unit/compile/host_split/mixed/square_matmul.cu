#include <c10/cuda/CUDAException.h>

constexpr int BLOCK_SIZE = 16;

constexpr int cdiv(int a, int b) {
    return (a + b - 1) / b;
}

__global__ void square_kernel(const float* matrix, float* result, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) result[i] = matrix[i] * matrix[i];
}

void square(const float* matrix, float* result, int n) {
    dim3 block(256);
    dim3 grid(cdiv(n, block.x));
    square_kernel<<<grid, block>>>(matrix, result, n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

__global__ void matmul_kernel(const float* A, const float* B, float* C, int h, int w, int k) {
    __shared__ float tile[cdiv(BLOCK_SIZE * BLOCK_SIZE, 1)];
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.y * BLOCK_SIZE + threadIdx.x] = 0.f;
    if (r >= h || c >= w) return;
    for (int i = 0; i < k; ++i) tile[threadIdx.y * BLOCK_SIZE + threadIdx.x] += A[r * k + i] * B[i * w + c];
    C[r * w + c] = tile[threadIdx.y * BLOCK_SIZE + threadIdx.x];
}

void matmul(const float* A, const float* B, float* C, int h, int w, int k) {
    dim3 block(BLOCK_SIZE, BLOCK_SIZE);
    dim3 grid(cdiv(w, block.x), cdiv(h, block.y));
    matmul_kernel<<<grid, block>>>(A, B, C, h, w, k);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
