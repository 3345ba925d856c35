/*
Layer norm, forward.

Compile: nvcc -O3 layernorm_forward.cu -o layernorm_forward
Run: ./layernorm_forward 2
*/
#include <assert.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include "common.h"

// ---------------------------------------------------------------- CPU reference

void layernorm_forward_cpu(float* out, float* mean, float* rstd, const float* inp, const float* weight,
                           const float* bias, int B, int T, int C) {
    float eps = 1e-5f;
    for (int bt = 0; bt < B * T; bt++) {
        const float* x = inp + bt * C;
        float m = 0.0f, v = 0.0f;
        for (int i = 0; i < C; i++) m += x[i];
        m = m / C;
        for (int i = 0; i < C; i++) v += (x[i] - m) * (x[i] - m);
        float s = 1.0f / sqrtf(v / C + eps);
        for (int i = 0; i < C; i++) out[bt * C + i] = (x[i] - m) * s * weight[i] + bias[i];
        mean[bt] = m;
        rstd[bt] = s;
    }
}

// ---------------------------------------------------------------- GPU kernels

// one thread a row
__global__ void layernorm_forward_kernel1(float* out, float* mean, float* rstd, const float* inp,
                                          const float* weight, const float* bias, int N, int C) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    float eps = 1e-5f;
    if (idx < N) {
        const float* x = inp + idx * C;
        float m = 0.0f, v = 0.0f;
        for (int i = 0; i < C; i++) m += x[i];
        m = m / C;
        for (int i = 0; i < C; i++) v += (x[i] - m) * (x[i] - m);
        float s = 1.0f / sqrtf(v / C + eps);
        for (int i = 0; i < C; i++) out[idx * C + i] = (x[i] - m) * s * weight[i] + bias[i];
        mean[idx] = m;
        rstd[idx] = s;
    }
}

// one warp a row
__global__ void layernorm_forward_kernel2(float* __restrict__ out, float* __restrict__ mean,
                                          float* __restrict__ rstd, const float* __restrict__ inp,
                                          const float* __restrict__ weight,
                                          const float* __restrict__ bias, int N, int C) {
    namespace cg = cooperative_groups;
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    int idx = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
    if (idx >= N) {
        return;
    }
    const float* x = inp + idx * C;
    float sum = 0.0f;
    for (int i = warp.thread_rank(); i < C; i += warp.size()) sum += x[i];
    sum = cg::reduce(warp, sum, cg::plus<float>{});
    float m = sum / C;
    sum = 0.0f;
    for (int i = warp.thread_rank(); i < C; i += warp.size()) {
        float diff = x[i] - m;
        sum += diff * diff;
    }
    sum = cg::reduce(warp, sum, cg::plus<float>{});
    float s = rsqrtf(sum / C + 1e-5f);
    if (warp.thread_rank() == 0) {
        mean[idx] = m;
        rstd[idx] = s;
    }
    for (int c = warp.thread_rank(); c < C; c += warp.size()) {
        out[idx * C + c] = s * (x[c] - m) * weight[c] + bias[c];
    }
}

// ---------------------------------------------------------------- launchers

void layernorm_forward1(float* out, float* mean, float* rstd, const float* inp, const float* weight,
                        const float* bias, int B, int T, int C, const int block_size) {
    const int N = B * T;
    const int grid_size = ceil_div(N, block_size);
    layernorm_forward_kernel1<<<grid_size, block_size>>>(out, mean, rstd, inp, weight, bias, N, C);
    cudaCheck(cudaGetLastError());
}

void layernorm_forward2(float* out, float* mean, float* rstd, const float* inp, const float* weight,
                        const float* bias, int B, int T, int C, const int block_size) {
    assert(block_size % 32 == 0);
    layernorm_forward_kernel2<<<ceil_div(B * T * 32, block_size), block_size>>>(out, mean, rstd, inp, weight,
                                                                               bias, B * T, C);
    cudaCheck(cudaGetLastError());
}

void layernorm_forward(int kernel_num, float* out, float* mean, float* rstd, const float* inp,
                       const float* weight, const float* bias, int B, int T, int C, const int block_size) {
    switch (kernel_num) {
        case 1:
            layernorm_forward1(out, mean, rstd, inp, weight, bias, B, T, C, block_size);
            break;
        case 2:
            layernorm_forward2(out, mean, rstd, inp, weight, bias, B, T, C, block_size);
            break;
        default:
            printf("Invalid kernel number\n");
            exit(1);
    }
}

int main(int argc, char** argv) {
    srand(0);
    int B = 8, T = 1024, C = 768;
    int deviceIdx = 0;
    cudaCheck(cudaSetDevice(deviceIdx));
    float* inp = make_random_float(B * T * C);
    float* d_inp;
    cudaCheck(cudaMalloc(&d_inp, B * T * C * sizeof(float)));
    cudaCheck(cudaMemcpy(d_inp, inp, B * T * C * sizeof(float), cudaMemcpyHostToDevice));
    int block_sizes[] = {32, 64, 128, 256, 512, 1024};
    for (int j = 0; j < sizeof(block_sizes) / sizeof(int); j++) {
        float elapsed = benchmark_kernel(2000, layernorm_forward, atoi(argv[1]), d_inp, d_inp, d_inp, d_inp,
                                         d_inp, d_inp, B, T, C, block_sizes[j]);
        printf("block_size %4d | time %.4f ms\n", block_sizes[j], elapsed);
    }
    free(inp);
    cudaCheck(cudaFree(d_inp));
    return 0;
}
