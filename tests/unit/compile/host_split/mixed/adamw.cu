/*
AdamW: one step, fused.
*/
#include <stdio.h>
#include "common.h"

// the reference, in C
void adamw_cpu(float* params_memory, const float* grads_memory, float* m_memory, float* v_memory, int t,
               long num_parameters, float learning_rate = 1e-3, float beta1 = 0.9, float beta2 = 0.999,
               float eps = 1e-8, float weight_decay = 0.0) {
    for (int i = 0; i < num_parameters; i++) {
        float m = beta1 * m_memory[i] + (1.0f - beta1) * grads_memory[i];
        params_memory[i] -= learning_rate * m;
    }
}

__device__ inline float lerp(float start, float end, float weight) {
    return fma(weight, end, fma(-weight, start, start));
}

__global__ void adamw_kernel2(float* params_memory, const float* grads_memory, float* m_memory, float* v_memory,
                              long num_parameters, float learning_rate, float beta1, float beta2,
                              float beta1_correction, float beta2_correction, float eps, float weight_decay) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= num_parameters) return;  // guard
    float grad = grads_memory[i];
    float m = m_memory[i];
    float v = v_memory[i];
    m = lerp(grad, m, beta1);
    m_memory[i] = m;
    v = lerp(grad * grad, v, beta2);
    v_memory[i] = v;
    m /= beta1_correction;
    v /= beta2_correction;
    params_memory[i] -= learning_rate * (m / (sqrtf(v) + eps) + weight_decay * params_memory[i]);
}

void adamw(int kernel_num, float* params_memory, const float* grads_memory, float* m_memory, float* v_memory,
           int t, long num_parameters, float learning_rate = 1e-3) {
    float beta1_correction = 1.0f - powf(0.9f, t);
    unsigned int block_size = 512;
    unsigned int num_blocks = ceil_div(num_parameters, (long)block_size);
    adamw_kernel2<<<num_blocks, block_size>>>(params_memory, grads_memory, m_memory, v_memory, num_parameters,
                                              learning_rate, 0.9f, 0.999f, beta1_correction, 1.f, 1e-8f, 0.f);
    cudaCheck(cudaGetLastError());
}

const long num_parameters = 1048576;
const float* h_params = make_random_float(num_parameters);

int main(int argc, char** argv) {
    const int t = 10;
    float* d_params_memory;
    cudaCheck(cudaMalloc(&d_params_memory, num_parameters * sizeof(float)));
    adamw(2, d_params_memory, d_params_memory, d_params_memory, d_params_memory, t, num_parameters);
    return EXIT_SUCCESS;
}
