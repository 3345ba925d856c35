/*
Softmax, forward: a block a row, a warp a row with an online maximum and sum.
*/
#include <stdio.h>
#include <stdlib.h>
#include <float.h>
#include <cuda_runtime.h>
#include <assert.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include "common.h"

namespace cg = cooperative_groups;

void softmax_forward_cpu(float* out, const float* inp, int N, int C) {
    for (int i = 0; i < N; i++) {
        float maxval = -INFINITY;
        for (int j = 0; j < C; j++) maxval = inp[i * C + j] > maxval ? inp[i * C + j] : maxval;
        double sum = 0.0;
        for (int j = 0; j < C; j++) sum += (out[i * C + j] = expf(inp[i * C + j] - maxval));
        for (int j = 0; j < C; j++) out[i * C + j] /= (float)sum;
    }
}

__device__ float warpReduceMax(float val) {
    for (int offset = 16; offset > 0; offset /= 2) {
        val = fmaxf(val, __shfl_down_sync(0xFFFFFFFF, val, offset));
    }
    return val;
}

__global__ void softmax_forward_block(float* out, const float* inp, int N, int C) {
    extern __shared__ float shared[];
    int row = blockIdx.x, tid = threadIdx.x, size = blockDim.x;
    const float* x = inp + row * C;
    float maxval = -INFINITY;
    for (int i = tid; i < C; i += size) maxval = fmaxf(maxval, x[i]);
    shared[tid] = maxval;
    __syncthreads();
    for (int stride = size / 2; stride >= 1; stride /= 2) {
        __syncthreads();
        if (tid < stride) shared[tid] = fmaxf(shared[tid], shared[tid + stride]);
    }
    __syncthreads();
    float offset = shared[0];
    __syncthreads();
    float sum = 0.f;
    for (int i = tid; i < C; i += size) sum += expf(x[i] - offset);
    shared[tid] = sum;
    for (int stride = size / 2; stride >= 1; stride /= 2) {
        __syncthreads();
        if (tid < stride) shared[tid] += shared[tid + stride];
    }
    __syncthreads();
    for (int i = tid; i < C; i += size) out[row * C + i] = expf(x[i] - offset) / shared[0];
}

struct SumMax {
    float maxval;
    float sum;
};

__device__ __forceinline__ SumMax reduce_sum_max_op(SumMax a, SumMax b) {
    bool a_bigger = (a.maxval > b.maxval);
    SumMax bigger = a_bigger ? a : b;
    SumMax smaller = a_bigger ? b : a;
    return {bigger.maxval, bigger.sum + smaller.sum * expf(smaller.maxval - bigger.maxval)};
}

__global__ void softmax_forward_online(float* out, const float* inp, int N, int C) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    int row = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
    if (row >= N) return;
    const float* x = inp + row * C;
    SumMax sm_partial = {-FLT_MAX, 0.0f};
    for (int i = warp.thread_rank(); i < C; i += warp.size()) {
        sm_partial = reduce_sum_max_op(sm_partial, SumMax{x[i], 1.0f});
    }
    SumMax sm_total = cg::reduce(warp, sm_partial, reduce_sum_max_op);
    for (int i = warp.thread_rank(); i < C; i += warp.size()) {
        out[row * C + i] = expf(x[i] - sm_total.maxval) / sm_total.sum;
    }
}

void softmax_forward1(float* out, const float* inp, int N, int C, int block_size) {
    size_t shared_mem_size = block_size * sizeof(float);
    softmax_forward_block<<<N, block_size, shared_mem_size>>>(out, inp, N, C);
}

void softmax_forward2(float* out, const float* inp, int N, int C, int block_size) {
    softmax_forward_online<<<ceil_div(N * 32, block_size), block_size>>>(out, inp, N, C);
}

typedef void (*launcher_t)(float*, const float*, int, int, int);
static const launcher_t launchers[] = {softmax_forward1, softmax_forward2};

int main(int argc, const char** argv) {
    int kernel_num = argc > 1 ? atoi(argv[1]) : 1;
    float *d_out, *d_inp;
    cudaCheck(cudaMalloc((void**)&d_out, 1024 * sizeof(float)));
    cudaCheck(cudaMalloc((void**)&d_inp, 1024 * sizeof(float)));
    launchers[kernel_num - 1](d_out, d_inp, 8, 128, 64);
    return EXIT_SUCCESS;
}
