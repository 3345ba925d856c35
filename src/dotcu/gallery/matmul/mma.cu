// matmul on tensor cores by mma.sync, for sm_80 and later: out = epilogue(a @ b), as in hopper.cu.
//
// The threads of a block copy tiles of a and b by cp.async, some steps ahead, and its warps
// multiply parts of BM x BN / warps, from registers that ldmatrix fills. Boxes of 64 lines of 128
// bytes lie in shared memory as TMA would leave them: the 16-byte chunks of a line change places,
// so that eight lines are read without bank conflicts. Addresses and lines of a matrix may be
// unaligned: then copies are narrower. tf32 and fp8 (sm_89) need operands with lines along k.
//
// Cost: 2 M N K FLOPs. Bound by the tensor cores where all sizes are large.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <dotcu/async.cuh>
#include <dotcu/mma.cuh>
#include <dotcu/schedule.cuh>
#include <dotcu/tensor.cuh>

#include "epilogue.cuh"

constexpr int ROW = 128;       // bytes of a line of a box
constexpr int BOX = 64 * ROW;  // bytes of 64 lines

__device__ inline void* at(unsigned char* tile, int line, int chunk) {
    return tile + line * ROW + (chunk ^ line % 8) * 16;
}

// Starts to copy ROWS rows or columns of an operand, from `row` on, and 128 bytes of k, by vectors
// of VEC elements. What is beyond the matrix becomes zeros.
template <int ROWS, int THREADS, int VEC, bool MN, typename T>
__device__ void load(unsigned char* tile, const dotcu::tensor<const T, 3>& from, int batch, int row,
                     int k) {
    constexpr int in_line = ROW / sizeof(T), vectors = in_line / VEC;
    const T* data = from.data + batch * from.stride(0);
    const int lines = from.size(1), ends = from.size(2);
#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * vectors; i += THREADS) {
        const int box_line = i / vectors, element = i % vectors * VEC;
        const int line = MN ? k + box_line % 64 : row + box_line;
        const int inner = MN ? row + box_line / 64 * in_line + element : k + element;
        const int byte = element * sizeof(T);
        auto* to = static_cast<unsigned char*>(at(tile, box_line, byte / 16)) + byte % 16;
        const int count = line < lines ? max(0, min(VEC, ends - inner)) : 0;
        const T* source = count ? data + line * from.stride(1) + inner : data;
        dotcu::copy_later(reinterpret_cast<dotcu::vector<T, VEC>*>(to), source, count);
    }
}

// 16 rows of a from `row` on, and 32 bytes of k, as mma takes them.
template <bool MN>
__device__ void load_a(unsigned (&x)[4], unsigned char* tile, int row, int step) {
    const int lane = threadIdx.x % 32;
    if constexpr (MN) {
        const int line = 16 * step + lane / 16 * 8 + lane % 8, m = row + lane / 8 % 2 * 8;
        dotcu::load_matrices<true>(x, at(tile + m / 64 * BOX, line, m % 64 / 8));
    } else {
        dotcu::load_matrices(x, at(tile, row + lane % 16, 2 * step + lane / 16));
    }
}

// 16 columns of b: x[0], x[1] of the first 8, x[2], x[3] of the others.
template <bool MN>
__device__ void load_b(unsigned (&x)[4], unsigned char* tile, int column, int step) {
    const int lane = threadIdx.x % 32;
    if constexpr (MN) {
        const int line = 16 * step + lane / 8 % 2 * 8 + lane % 8, n = column + lane / 16 * 8;
        dotcu::load_matrices<true>(x, at(tile + n / 64 * BOX, line, n % 64 / 8));
    } else {
        const int line = column + lane / 16 * 8 + lane % 8;
        dotcu::load_matrices(x, at(tile, line, 2 * step + lane / 8 % 2));
    }
}

// a: (batches, M, K), or (batches, K, M) with A_MN; b and up: (batches, N, K), or (batches, K, N)
// with B_MN; their last stride is 1. DOWN x ACROSS: the warps. VEC_A, VEC_B: elements that a copy
// takes at once.
template <typename T, typename Out, int BM, int BN, int DOWN, int ACROSS, int STAGES, int GROUP,
          int VEC_A, int VEC_B, bool A_MN, bool B_MN, int FLAGS, typename Extra>
__global__ void __launch_bounds__(32 * DOWN * ACROSS)
    matmul_mma(dotcu::tensor<const T, 3> a, dotcu::tensor<const T, 3> b,
               dotcu::tensor<const T, 3> up, Out* out, const Extra* bias, const Extra* other,
               const float* scale_a, const float* scale_b, const int* ends, float alpha, float beta,
               int batches, int m, int n, int k) {
    constexpr int THREADS = 32 * DOWN * ACROSS, BK = ROW / sizeof(T), STAGE = (BM + BN) * ROW;
    constexpr int ROWS = BM / DOWN, COLUMNS = BN / ACROSS;  // of a warp
    constexpr bool PAIR = FLAGS & SWIGLU;
    constexpr int OUT_BN = PAIR ? BN / 2 : BN, B_ROWS = OUT_BN;
    extern __shared__ __align__(1024) unsigned char memory[];
    if constexpr (FLAGS & SCALES) alpha *= *scale_a * *scale_b;
    const Epilogue<FLAGS, Extra> epilogue{bias, other, scale_a, scale_b, alpha, beta, m, n};
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = (k + BK - 1) / BK;
    const int warp_row = warp % DOWN * ROWS, warp_column = warp / DOWN;

    const dotcu::tile_grid tiles{batches, (m + BM - 1) / BM, (n + OUT_BN - 1) / OUT_BN};
    dotcu::group_tiles groups{ends, batches, m, BM, tiles.columns};
    for (int t = blockIdx.x; FLAGS & GROUPS || t < tiles.count(); t += gridDim.x) {
        dotcu::tile tile = tiles.grouped(t, GROUP);
        int row = tile.row * BM, end = m;  // and the end of the tile's rows
        if constexpr (FLAGS & GROUPS) {
            if (!groups.find(t, tile, end)) break;
            row = tile.row;
        }
        const int column = tile.column * OUT_BN, batch = FLAGS & GROUPS ? 0 : tile.batch;
        auto copy = [&](int step) {
            if (step < steps) {
                unsigned char* to = memory + step % STAGES * STAGE;
                load<BM, THREADS, VEC_A, A_MN>(to, a, batch, row, step * BK);
                to += BM * ROW;
                load<B_ROWS, THREADS, VEC_B, B_MN>(to, b, tile.batch, column, step * BK);
                if constexpr (PAIR)
                    load<B_ROWS, THREADS, VEC_B, B_MN>(to + B_ROWS * ROW, up, tile.batch, column,
                                                       step * BK);
            }
            dotcu::commit_copies();
        };
        // Of a pair, the first half of a warp's columns is of b and the other one of up.
        auto column_of = [&](int j) {
            constexpr int half = COLUMNS / 2;
            if (PAIR) return (j < half ? 0 : OUT_BN - half) + warp_column * half + j;
            return warp_column * COLUMNS + j;
        };
        float d[ROWS / 16][COLUMNS / 8][4] = {};
        for (int step = 0; step < STAGES - 1; ++step) copy(step);
        for (int step = 0; step < steps; ++step) {
            dotcu::wait_for_copies<STAGES - 2>();
            __syncthreads();  // the tiles of this step are there, and all are done with the last
            copy(step + STAGES - 1);
            unsigned char* a_tile = memory + step % STAGES * STAGE;
            unsigned char* b_tile = a_tile + BM * ROW;
#pragma unroll
            for (int s = 0; s < ROW / 32; ++s) {
                unsigned x[ROWS / 16][4];
#pragma unroll
                for (int i = 0; i < ROWS / 16; ++i)
                    load_a<A_MN>(x[i], a_tile, warp_row + 16 * i, s);
#pragma unroll
                for (int j = 0; j < COLUMNS / 16; ++j) {
                    unsigned y[4];
                    load_b<B_MN>(y, b_tile, column_of(16 * j), s);
#pragma unroll
                    for (int i = 0; i < ROWS / 16; ++i) {
                        dotcu::mma<T>(d[i][2 * j], x[i], y[0], y[1]);
                        dotcu::mma<T>(d[i][2 * j + 1], x[i], y[2], y[3]);
                    }
                }
            }
        }
        __syncthreads();  // before the next tile's copies

        Out* matrix = out + static_cast<long long>(batch) * m * n;
#pragma unroll
        for (int i = 0; i < ROWS / 16; ++i) {
#pragma unroll
            for (int j = 0; j < (PAIR ? COLUMNS / 16 : COLUMNS / 8); ++j) {
                float (&x)[4] = d[i][j];
                const int r = row + warp_row + 16 * i + lane / 4;
                const int c = column + column_of(8 * j) + lane % 4 * 2;
                if constexpr (PAIR)
                    epilogue.pair(x, d[i][COLUMNS / 16 + j]);
                else
                    epilogue(x, batch, r, c);
                write_quad(matrix, end, n, r, c, x);
            }
        }
    }
    if constexpr (FLAGS & GROUPS) zero_rest(out, ends, batches, m, n);
}
