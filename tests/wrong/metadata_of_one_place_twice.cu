// A sparse product whose metadata has both values of four at the same place.
#include <cuda_fp16.h>

__global__ void product(const unsigned* a, const unsigned* b, float* out) {
    int t = threadIdx.x;
    float d[4] = {};
#ifdef FIXED
    unsigned places = 0x44444444;  // 0b0100: the first and the second of each four
#else
    unsigned places = 0x55555555;
#endif
    asm volatile(
        "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[t]), "r"(a[32 + t]), "r"(b[t]), "r"(b[32 + t]), "r"(places));  // FAULT: metadata
    for (int i = 0; i < 4; ++i) out[4 * t + i] = d[i];
}
