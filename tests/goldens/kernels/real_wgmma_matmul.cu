// out = a @ b, all row by row, in bf16 with sums in f32: two warpgroups a block, each of which adds
// up 64 of its 128 rows by 64 columns. Stages are filled by plain stores, while the wgmma of the
// stage before is in flight.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int ROWS = 128, COLUMNS = 64, DEPTH = 64;

// 128 bytes a row, of which 16-byte chunks change places by the row's number.
__device__ u32 swizzled(u32 row, u32 column) {
    return 64 * row + ((column / 8 ^ row % 8) * 8 + column % 8);
}

__device__ u64 matrix(const u16* tile, u32 leading, u32 stride) {
    const u32 address = (u32)__cvta_generic_to_shared(tile);
    return (u64)(address >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | 1ull << 62;
}

__device__ void multiply(float (&d)[32], u64 a, u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, 1, 1, 1, 0, 1;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
          "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b)
        : "memory");
}

extern "C" __global__ void __launch_bounds__(256)
    real_wgmma_matmul(const u16* a, const u16* b, float* out, int n, int k) {
    __shared__ alignas(1024) u16 as[2][ROWS * DEPTH], bs[2][DEPTH * COLUMNS];
    const int thread = threadIdx.x, group = thread / 128;
    const int row = blockIdx.y * ROWS, column = blockIdx.x * COLUMNS;
    float d[32] = {};
    for (int step = 0; step < k / DEPTH; ++step) {
        const int stage = step % 2;
        for (int i = thread; i < ROWS * DEPTH; i += 256) {
            const int r = i / DEPTH, c = i % DEPTH;
            as[stage][swizzled(r, c)] = a[(u64)(row + r) * k + step * DEPTH + c];
        }
        for (int i = thread; i < DEPTH * COLUMNS; i += 256) {
            const int r = i / COLUMNS, c = i % COLUMNS;
            bs[stage][swizzled(r, c)] = b[(u64)(step * DEPTH + r) * n + column + c];
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int j = 0; j < DEPTH; j += 16) {
            multiply(d, matrix(as[stage] + 64 * DEPTH * group + j, 16, 1024),
                     matrix(bs[stage] + j * COLUMNS, 1024, 1024));
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    const int lane = thread % 32, first = row + 16 * (thread / 32) + lane / 4;
    for (int i = 0; i < 32; ++i) {
        const int r = first + 8 * (i / 2 % 2), c = column + 8 * (i / 4) + 2 * (lane % 4) + i % 2;
        out[(u64)r * n + c] = d[i];
    }
}
