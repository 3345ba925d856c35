// Kernels of tensor maps, for NVRTC and nvcc alike.

#include "dotcu/tma.cuh"

// Shared memory as a load of one box leaves it.
template <typename T, int count, int rank>
__global__ void dump(const __grid_constant__ CUtensorMap x, T* out, int a, int b, int c, int d,
                     int e) {
    __shared__ alignas(1024) T tile[count];
    __shared__ dotcu::mbarrier arrived;
    if (threadIdx.x == 0) arrived.init(1);
    __syncthreads();
    if (threadIdx.x == 0) {
        arrived.arrive_expect(sizeof(tile));
        if constexpr (rank == 1) dotcu::tma_load(tile, x, arrived, a);
        if constexpr (rank == 2) dotcu::tma_load(tile, x, arrived, a, b);
        if constexpr (rank == 3) dotcu::tma_load(tile, x, arrived, a, b, c);
        if constexpr (rank == 4) dotcu::tma_load(tile, x, arrived, a, b, c, d);
        if constexpr (rank == 5) dotcu::tma_load(tile, x, arrived, a, b, c, d, e);
    }
    arrived.wait(0);
    for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = tile[i];
}

// The same, of a box whose rows are shorter than the swizzle: `bytes` come, and what lies between
// them stays as `out` has it.
template <int count>
__global__ void dump_short_rows(const __grid_constant__ CUtensorMap x, float* out, int bytes,
                                int row, int column) {
    __shared__ alignas(1024) float tile[count];
    __shared__ dotcu::mbarrier arrived;
    for (int i = threadIdx.x; i < count; i += blockDim.x) tile[i] = out[i];
    if (threadIdx.x == 0) arrived.init(1);
    dotcu::tma_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        arrived.arrive_expect(bytes);
        dotcu::tma_load(tile, x, arrived, row, column);
    }
    arrived.wait(0);
    for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = tile[i];
}

// A store of one box, from shared memory that is filled in the order of its addresses.
template <typename T, int count, int rank>
__global__ void fill(const T* in, const __grid_constant__ CUtensorMap out, int a, int b, int c,
                     int d, int e) {
    __shared__ alignas(1024) T tile[count];
    for (int i = threadIdx.x; i < count; i += blockDim.x) tile[i] = in[i];
    dotcu::tma_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        if constexpr (rank == 1) dotcu::tma_store(out, tile, a);
        if constexpr (rank == 2) dotcu::tma_store(out, tile, a, b);
        if constexpr (rank == 3) dotcu::tma_store(out, tile, a, b, c);
        if constexpr (rank == 4) dotcu::tma_store(out, tile, a, b, c, d);
        if constexpr (rank == 5) dotcu::tma_store(out, tile, a, b, c, d, e);
        dotcu::tma_commit();
        dotcu::tma_wait<0>();
    }
}

// out = 2 x, tile by tile, each block a row of them through two buffers.
__global__ void twice(const __grid_constant__ CUtensorMap x,
                      const __grid_constant__ CUtensorMap out, int tiles) {
    __shared__ alignas(128) float tile[2][16][32];
    __shared__ dotcu::mbarrier arrived[2];
    const int row = blockIdx.x * 16;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < 2; ++stage) arrived[stage].init(1);
        arrived[0].arrive_expect(sizeof(tile[0]));
        dotcu::tma_load(tile[0], x, arrived[0], row, 0);
    }
    __syncthreads();
    for (int i = 0; i < tiles; ++i) {
        const int stage = i % 2;
        if (threadIdx.x == 0 && i + 1 < tiles) {
            dotcu::tma_wait<0>();  // the store of the buffer that is loaded next
            arrived[1 - stage].arrive_expect(sizeof(tile[0]));
            dotcu::tma_load(tile[1 - stage], x, arrived[1 - stage], row, (i + 1) * 32);
        }
        arrived[stage].wait(i / 2 % 2);
        for (int j = threadIdx.x; j < 16 * 32; j += blockDim.x) tile[stage][j / 32][j % 32] *= 2;
        dotcu::tma_fence();
        __syncthreads();
        if (threadIdx.x == 0) {
            dotcu::tma_store(out, tile[stage], row, i * 32);
            dotcu::tma_commit();
        }
    }
    if (threadIdx.x == 0) dotcu::tma_wait<0>();
}
