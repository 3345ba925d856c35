// A program of its own, for a quick loop without Python: four floats a thread, timed and compared.
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include <iostream>
#include <string>

using namespace std;

#define N (1 << 24)
#define CHECK(call)                                                                       \
    do {                                                                                  \
        cudaError_t status = (call);                                                      \
        if (status != cudaSuccess) {                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
            exit(EXIT_FAILURE);                                                           \
        }                                                                                 \
    } while (0)

const int WARM_UPS = 3;
static int trials = 5;

__device__ __forceinline__ float4 add4(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__global__ void fast_add(const float* a, const float* b, float* out, unsigned n) {
    unsigned quads = n / 4;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += blockDim.x * gridDim.x) {
        float4 x = __ldg(reinterpret_cast<const float4*>(a) + i);
        float4 y = __ldg(reinterpret_cast<const float4*>(b) + i);
        reinterpret_cast<float4*>(out)[i] = add4(x, y);
    }
    unsigned tail = quads * 4 + blockIdx.x * blockDim.x + threadIdx.x;
    if (tail < n) out[tail] = a[tail] + b[tail];
}

struct Timer {
    cudaEvent_t start, stop;
    Timer() {
        CHECK(cudaEventCreate(&start));
        CHECK(cudaEventCreate(&stop));
    }
    ~Timer() { cudaEventDestroy(start); }
    float ms() {
        float elapsed;
        cudaEventElapsedTime(&elapsed, start, stop);
        return elapsed;
    }
};

bool compare(const float* got, const float* want, int n) {
    int errors = 0;
    for (int i = 0; i < n; i++)
        if (got[i] != want[i] && errors++ == 0) cout << "first bad index: " << i << endl;
    return errors == 0;
}

int main(int argc, char** argv) {
    string which = argc > 1 ? argv[1] : "fast";
    float *a, *b, *out;
    CHECK(cudaMallocManaged(&a, N * sizeof(float)));
    CHECK(cudaMallocManaged(&b, N * sizeof(float)));
    CHECK(cudaMallocManaged(&out, N * sizeof(float)));
    Timer timer;
    for (int i = 0; i < WARM_UPS + trials; i++) {
        cudaEventRecord(timer.start);
        fast_add<<<1024, 256>>>(a, b, out, N);
        cudaEventRecord(timer.stop);
        CHECK(cudaDeviceSynchronize());
        printf("%s: %f ms\n", which.c_str(), timer.ms());
    }
    return 0;
}
