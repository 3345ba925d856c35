#include <cuda_fp16.h>

// A product of 16 rows, of which the kernel wrote five and stores five.
__global__ void product(float* out, int rows) {
    __shared__ __align__(16) __half a[16][24], b[8][24];
    int lane = threadIdx.x;
    for (int i = lane; i < rows * 16; i += 32) a[i / 16][i % 16] = __int2half_rn(i / 16);
    for (int i = lane; i < 8 * 16; i += 32) b[i / 16][i % 16] = __int2half_rn(1);
    __syncwarp();
    unsigned left[4], right[2];
    float sums[4] = {0, 0, 0, 0};
    unsigned at = __cvta_generic_to_shared(&a[lane % 16][lane / 16 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(left[0]), "=r"(left[1]), "=r"(left[2]), "=r"(left[3])
                 : "r"(at));
    for (int j = 0; j < 2; ++j) right[j] = *(unsigned*)&b[lane / 4][lane % 4 * 2 + j * 8];
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
    for (int j = 0; j < 4; ++j) {
        int row = lane / 4 + j / 2 * 8;
        if (row < rows) out[row * 8 + lane % 4 * 2 + j % 2] = sums[j];
    }
}
