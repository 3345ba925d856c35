// What the programs of this folder share: checks, types, random numbers, a comparison, a clock.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARP_SIZE 32U
extern cudaDeviceProp deviceProp;

template <class T>
__host__ __device__ T ceil_div(T dividend, T divisor) {
    return (dividend + divisor - 1) / divisor;
}

__device__ float warpReduceSum(float val) {
    for (int offset = 16; offset > 0; offset /= 2) {
        val += __shfl_xor_sync(0xFFFFFFFF, val, offset);
    }
    return val;
}

void cuda_check(cudaError_t error, const char* file, int line) {
    if (error != cudaSuccess) {
        printf("[CUDA ERROR] at file %s:%d:\n%s\n", file, line, cudaGetErrorString(error));
        exit(EXIT_FAILURE);
    }
};
#define cudaCheck(err) (cuda_check(err, __FILE__, __LINE__))

void cublasCheck(cublasStatus_t status, const char* file, int line) {
    if (status != CUBLAS_STATUS_SUCCESS) {
        printf("[cuBLAS ERROR]: %d %s %d\n", status, file, line);
        exit(EXIT_FAILURE);
    }
}
#define cublasCheck(status) { cublasCheck((status), __FILE__, __LINE__); }

cublasHandle_t cublas_handle;
cublasComputeType_t cublas_compute_type;
static size_t workspace_size = 32 * 1024 * 1024;
static void* workspace = NULL;
int cuda_arch_major = 0;
class TensorFiller;

#if defined(ENABLE_BF16)
#include <cuda_bf16.h>
typedef __nv_bfloat16 floatX;
#define PRECISION_MODE 2
#elif defined(ENABLE_FP16)
#include <cuda_fp16.h>
typedef half floatX;
#define PRECISION_MODE 1
#else
typedef float floatX;
#endif

// 128 bits of elements, loaded and stored at once.
template <class ElementType>
struct alignas(16) Packed128 {
    __device__ Packed128() = default;
    __device__ explicit Packed128(int4 bits) {
        memcpy(&payload, &bits, sizeof(bits));
    }
    __device__ ElementType& operator[](int index) { return payload[index]; }
    __device__ const ElementType& operator[](int index) const { return payload[index]; }
    __device__ int4 get_bits() const {
        int4 bits;
        memcpy(&bits, &payload, sizeof(bits));
        return bits;
    }
    static constexpr const size_t size = sizeof(int4) / sizeof(ElementType);
    ElementType payload[size];
};
typedef Packed128<float> f128;
typedef Packed128<floatX> x128;

template <class ElementType>
__device__ Packed128<ElementType> load128(const ElementType* address) {
    return Packed128<ElementType>{*reinterpret_cast<const int4*>(address)};
}

template <class ElementType>
__device__ void store128(ElementType* target, Packed128<ElementType> value) {
    *reinterpret_cast<int4*>(target) = value.get_bits();
}

float* make_random_float(size_t N) {
    float* arr = (float*)malloc(N * sizeof(float));
    for (size_t i = 0; i < N; i++) arr[i] = ((float)rand() / RAND_MAX) * 2.0 - 1.0;
    return arr;
}

template <class D, class T>
void validate_result(D* device_result, const T* cpu_reference, const char* name, size_t n, T tolerance = 1e-4) {
    D* out_gpu = (D*)malloc(n * sizeof(D));
    cudaCheck(cudaMemcpy(out_gpu, device_result, n * sizeof(D), cudaMemcpyDeviceToHost));
    int nfaults = 0;
    for (size_t i = 0; i < n; i++) {
        if (fabs(cpu_reference[i] - (T)out_gpu[i]) > tolerance) nfaults++;
    }
    if (nfaults > 0) exit(EXIT_FAILURE);
    free(out_gpu);
}

template <class Kernel, class... KernelArgs>
float benchmark_kernel(int repeats, Kernel kernel, KernelArgs&&... kernel_args) {
    cudaEvent_t start, stop;
    cudaCheck(cudaEventCreate(&start));
    cudaCheck(cudaEventCreate(&stop));
    float elapsed = 0.f;
    for (int i = 0; i < repeats; i++) kernel(std::forward<KernelArgs>(kernel_args)...);
    cudaCheck(cudaEventElapsedTime(&elapsed, start, stop));
    return elapsed / repeats;
}
