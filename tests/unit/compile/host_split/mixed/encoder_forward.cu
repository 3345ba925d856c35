/*
Token embedding plus position embedding, forward.
*/
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>
#include <cassert>
#include "common.h"

void encoder_forward_cpu(float* out, const int* inp, const float* wte, const float* wpe, int B, int T, int C) {
    for (int b = 0; b < B; b++) {
        for (int t = 0; t < T; t++) {
            float* out_bt = out + b * T * C + t * C;
            int ix = inp[b * T + t];
            for (int i = 0; i < C; i++) {
                out_bt[i] = wte[ix * C + i] + wpe[t * C + i];
            }
        }
    }
}

__global__ void encoder_forward_kernel2(floatX* out, const int* inp, const floatX* wte, const floatX* wpe, int B,
                                        int T, int C) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    int N = B * T * C;
    if (idx < N) {
        int bt = idx / C;
        int b = bt / T;
        int t = bt % T;
        int c = idx % C;
        int ix = inp[b * T + t];
        out[b * T * C + t * C + c] = (floatX)((float)wte[ix * C + c] + (float)wpe[t * C + c]);
    }
}

__global__ void encoder_forward_kernel3(floatX* out, const int* inp, const floatX* wte, const floatX* wpe, int B,
                                        int T, int C) {
    int idx = (blockIdx.x * blockDim.x + threadIdx.x) * x128::size;
    int N = B * T * C;
    if (idx < N) {
        int bt = idx / C;
        int c = idx % C;
        int ix = inp[bt];
        x128 packed_out;
        x128 token = load128(wte + ix * C + c);
        x128 position = load128(wpe + (bt % T) * C + c);
        for (int k = 0; k < token.size; k++) packed_out[k] = (floatX)((float)token[k] + (float)position[k]);
        store128(out + idx, packed_out);
    }
}

template <typename Launcher>
void time_it(Launcher launcher) {
    benchmark_kernel(1000, launcher);
}

int main(int argc, char** argv) {
    int B = 8, T = 1024, C = 768, V = 50257;
    int* inp = (int*)malloc(B * T * sizeof(int));
    for (int i = 0; i < B * T; i++) inp[i] = rand() % V;
    time_it([&] { encoder_forward_kernel2<<<ceil_div(B * T * C, 256), 256>>>(NULL, inp, NULL, NULL, B, T, C); });
    time_it([&] {
        encoder_forward_kernel3<<<ceil_div(B * T * C, 256 * 4), 256>>>(NULL, inp, NULL, NULL, B, T, C);
    });
    free(inp);
}
