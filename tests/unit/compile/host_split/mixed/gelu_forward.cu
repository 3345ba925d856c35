/*
GELU, forward, with 128-bit loads.
*/
#include "common.h"

#define GELU_SCALING_FACTOR sqrtf(2.0f / M_PI)

void gelu_forward_cpu(float* out, const float* inp, int N) {
    for (int i = 0; i < N; i++) {
        float x = inp[i], cube = 0.044715f * x * x * x;
        out[i] = 0.5f * x * (1.0f + tanhf(GELU_SCALING_FACTOR * (x + cube)));
    }
}

__global__ void gelu_forward_kernel1(floatX* out, const floatX* inp, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) {
        float xi = inp[i];
        float cube = 0.044715f * xi * xi * xi;
        out[i] = 0.5f * xi * (1.0f + tanhf(GELU_SCALING_FACTOR * (xi + cube)));
    }
}

__global__ void gelu_forward_kernel2(floatX* out, const floatX* inp, int N) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * x128::size;
    if (i < N) {
        x128 packed_out;
        x128 packed_inp = load128(inp + i);
        for (int k = 0; k < packed_inp.size; ++k) {
            float xi = (float)packed_inp[k];
            float cube = 0.044715f * xi * xi * xi;
            packed_out[k] = (floatX)(0.5f * xi * (1.0f + tanhf(GELU_SCALING_FACTOR * (xi + cube))));
        }
        store128(out + i, packed_out);
    }
}

void gelu_forward1(floatX* out, const floatX* inp, int N, const int block_size) {
    gelu_forward_kernel1<<<ceil_div(N, block_size), block_size>>>(out, inp, N);
    cudaCheck(cudaGetLastError());
}

void gelu_forward2(floatX* out, const floatX* inp, int N, const int block_size) {
    const int grid_size = ceil_div(N, block_size * (int)x128::size);
    gelu_forward_kernel2<<<grid_size, block_size>>>(out, inp, N);
    cudaCheck(cudaGetLastError());
}

int main(int argc, const char** argv) {
    int N = 8 * 1024 * 768;
    float* inp = make_random_float(N);
    floatX *d_out, *d_inp;
    cudaCheck(cudaMalloc(&d_out, N * sizeof(floatX)));
#if defined(ENABLE_BF16) || defined(ENABLE_FP16)
    float tol = 1e-2f;
    if (argc > 2) {
#else
    float tol = 1e-5f;
    if (argc > 1) {
#endif
        gelu_forward1(d_out, d_inp, N, 256);
    }
    validate_result(d_out, inp, "out", N, tol);
    return 0;
}
