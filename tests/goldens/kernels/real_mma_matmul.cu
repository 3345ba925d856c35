// A matrix product of f16 by mma.sync: tiles come by cp.async into two buffers, fragments by
// ldmatrix.
//
// Four warps of a block make a 32 x 32 tile of out, 16 x 16 each; K goes in steps of 16.

#include <cuda_fp16.h>

typedef unsigned int u32;

__device__ u32 address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ void copy(u32 to, const half* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void real_mma_matmul(const half* a, const half* b, float* out, int n, int k) {
    __shared__ __align__(16) half as[2][32][24], bs[2][16][40];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const int row = blockIdx.y * 32, column = blockIdx.x * 32;
    const int down = warp / 2 * 16, across = warp % 2 * 16;
    float sum[2][4] = {};
    auto fetch = [&](int step) {
        const int at = step * 16, s = step % 2;
        if (t < 64)
            copy(address(&as[s][t / 2][t % 2 * 8]), a + (row + t / 2) * k + at + t % 2 * 8);
        else
            copy(address(&bs[s][(t - 64) / 4][t % 4 * 8]),
                 b + (at + (t - 64) / 4) * n + column + t % 4 * 8);
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    fetch(0);
    for (int step = 0; step < k / 16; ++step) {
        if (step + 1 < k / 16) {
            fetch(step + 1);
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        } else {
            asm volatile("cp.async.wait_group 0;" ::: "memory");
        }
        __syncthreads();
        u32 fa[4], fb[4];
        const int s = step % 2;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3])
                     : "r"(address(&as[s][down + lane % 16][lane / 16 * 8]))
                     : "memory");
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(fb[0]), "=r"(fb[1]), "=r"(fb[2]), "=r"(fb[3])
                     : "r"(address(&bs[s][lane % 16][across + lane / 16 * 8]))
                     : "memory");
        multiply(sum[0], fa, fb[0], fb[1]);
        multiply(sum[1], fa, fb[2], fb[3]);
        __syncthreads();
    }
    for (int half_tile = 0; half_tile < 2; ++half_tile) {
        for (int i = 0; i < 4; ++i) {
            const int r = row + down + lane / 4 + i / 2 * 8;
            const int c = column + across + half_tile * 8 + lane % 4 * 2 + i % 2;
            out[r * n + c] = sum[half_tile][i];
        }
    }
}
