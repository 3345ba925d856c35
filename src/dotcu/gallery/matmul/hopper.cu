// matmul on the tensor cores of sm_90a: out = epilogue(a @ b), for each matrix of a batch.
//
//     a: (M, K), b: (K, N), out: (M, N); bf16, fp16, tf32 or fp8, with sums in float32
//
// Persistent blocks of three warpgroups. The first thread of the last one copies tiles of a and b
// by TMA into a ring of stages; the other two multiply, half of a tile each or whole ones in turn,
// and write by way of shared memory, while the first already copies for the next tile. Two blocks
// of a cluster have tiles beside each other: each copies half of what both need to both. Where
// tiles are few, more of them divide k: each has sums of a part, and adds up some of all, in order.
//
// Operands lie in shared memory as they do in memory: with rows along k (K-major), or along M or N
// (MN-major), which tensor cores read as well in types of 16 bits. Beyond a matrix are zeros.
//
// Cost: 2 M N K FLOPs. Bound by the tensor cores, or by power, where all sizes are large.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <dotcu/cluster.cuh>
#include <dotcu/mma.cuh>
#include <dotcu/pipeline.cuh>
#include <dotcu/schedule.cuh>
#include <dotcu/vector.cuh>
#include <dotcu/wgmma.cuh>

#include "epilogue.cuh"

constexpr int ROW = 128;                        // bytes of a row of a box, which is the swizzle
[[maybe_unused]] constexpr int BOX = 64 * ROW;  // bytes of 64 rows
constexpr int CONSUMERS = 2;

// How a tile of BM x BN is shared among two warpgroups, unless they take turns, and a cluster.
template <int BM, int BN, int CLUSTER, bool TURNS>
struct Shares {
    static constexpr int down = !TURNS && BM % 128 == 0 ? 2 : 1;  // warpgroups
    static constexpr int across = TURNS ? 1 : CONSUMERS / down;
    static constexpr int rows = BM / down, columns = BN / across, high = rows / 64;
    static constexpr bool share_b = BN >= BM;  // the blocks are below each other
    static constexpr int blocks_down = share_b ? CLUSTER : 1, blocks_across = share_b ? 1 : CLUSTER;
};

// Copies ROWS rows of an operand, from `row` on, and 128 bytes of k; with MULTICAST to the `blocks`
// of the cluster.
template <bool MN, int ROWS, bool MULTICAST>
__device__ void load(unsigned char* to, const CUtensorMap& map, dotcu::mbarrier& full, int batch,
                     int row, int k, int blocks) {
    auto box = [&](void* to, int row, int column) {
        MULTICAST ? dotcu::tma_multicast(blocks, to, map, full, batch, row, column)
                  : dotcu::tma_load(to, map, full, batch, row, column);
    };
    if constexpr (MN) {
#pragma unroll
        for (int i = 0; i < ROWS / 64; ++i) box(to + i * BOX, k, row + 64 * i);
    } else {
        box(to, row, k);
    }
}

// TMA_STORE: rows of out are multiples of 16 bytes. C_BOXES: of each warpgroup, for its results.
template <typename T, typename Out, int BM, int BN, int STAGES, int CLUSTER, bool SPLIT, bool TURNS,
          int C_BOXES, int GROUP, bool A_MN, bool B_MN, bool TMA_STORE, int FLAGS, typename Extra>
__global__ void __launch_bounds__(128 * (CONSUMERS + 1), 1)
    matmul(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
           const __grid_constant__ CUtensorMap up, const __grid_constant__ CUtensorMap out_map,
           Out* out, const Extra* bias, const Extra* other, const float* scale_a,
           const float* scale_b, const int* ends, float alpha, float beta, int batches, int m,
           int n, int k) {
    using S = Shares<BM, BN, CLUSTER, TURNS>;
    constexpr int B_HIGH = B_MN ? (BN + 63) / 64 * 64 : BN;  // whole boxes
    constexpr int A_BYTES = BM * ROW, B_BYTES = B_HIGH * ROW, BK = ROW / sizeof(T);
    constexpr bool PAIR = FLAGS & SWIGLU;
    static_assert(!SPLIT || !(TURNS || TMA_STORE || PAIR || FLAGS & GROUPS), "one tile of sums");
    constexpr bool APART = BM * BN <= 64 * 128;  // splits' parts of sums have memory of their own
    constexpr int OUT_BN = PAIR ? BN / 2 : BN, BOX_COLUMNS = ROW / sizeof(Out);
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ dotcu::pipeline<STAGES> pipe;
    constexpr bool BY_COLUMN = !SPLIT && FLAGS & (ROW_SCALES | BIAS);
    __shared__ float of_columns[CONSUMERS][BY_COLUMN ? S::columns : 1];  // scales, or else biases
    if (threadIdx.x == 0) pipe.init(1, (TURNS ? 1 : CONSUMERS) * CLUSTER);
    if (threadIdx.x == 128 * CONSUMERS) dotcu::tma_prefetch(a), dotcu::tma_prefetch(b);
    constexpr bool CLUSTERED = SPLIT || CLUSTER > 1;
    if constexpr (CLUSTERED) dotcu::cluster_arrive();  // init() has the fence

    const int warpgroup = threadIdx.x / 128;
    const int rank = CLUSTERED ? dotcu::cluster_rank() : 0;
    const int blocks = SPLIT ? dotcu::cluster_blocks() : CLUSTER, splits = blocks / CLUSTER;
    const int split = SPLIT ? rank / CLUSTER : 0, pair = split * CLUSTER, part = rank - pair;
    const int all_steps = (k + BK - 1) / BK, first_step = all_steps * split / splits;
    const int steps = all_steps * (split + 1) / splits - first_step;
    const dotcu::tile_grid tiles{batches, (m + BM * S::blocks_down - 1) / (BM * S::blocks_down),
                                 (n + OUT_BN * S::blocks_across - 1) / (OUT_BN * S::blocks_across)};
    dotcu::group_tiles groups{ends, batches, m, BM * S::blocks_down, tiles.columns};
    auto find = [&](int t, dotcu::tile& at, int& end) {
        if constexpr (FLAGS & GROUPS) {
            if (!groups.find(t, at, end)) return false;
        } else {
            if (t >= tiles.count()) return false;
            at = tiles.grouped(t, GROUP), end = m;
            at.row *= S::blocks_down * BM;
        }
        at.row += (S::share_b ? part : 0) * BM;
        at.column = (at.column * S::blocks_across + (S::share_b ? 0 : part)) * OUT_BN;
        return true;
    };
    const int turn = TURNS && warpgroup == 1;
    int t = blockIdx.x / blocks + turn * (gridDim.x / blocks), end = m;  // of the tile's rows
    dotcu::tile tile;
    bool more = find(t, tile, end);
    auto go = [&](int tiles) { more = find(t += tiles * (gridDim.x / blocks), tile, end); };
    dotcu::ring<STAGES> at;
    CLUSTERED ? dotcu::cluster_wait() : __syncthreads();

    if (warpgroup == CONSUMERS) {
        dotcu::registers_down<40>();
        if (threadIdx.x % 128 == 0) {
            constexpr bool SHARE_A = CLUSTER > 1 && !S::share_b,
                           SHARE_B = CLUSTER > 1 && S::share_b;
            constexpr int A_ROWS = SHARE_A ? BM / 2 : BM,
                          B_ROWS = SHARE_B || PAIR ? B_HIGH / 2 : B_HIGH;
            const int a_part = SHARE_A ? part * A_ROWS : 0, b_part = SHARE_B ? part * B_ROWS : 0;
            for (; more; go(1)) {
                const int of_a = FLAGS & GROUPS ? 0 : tile.batch;
                for (int step = 0; step < steps; ++step, at.next()) {
                    const int from = (first_step + step) * BK;
                    unsigned char* stage = memory + at.stage * (A_BYTES + B_BYTES);
                    dotcu::mbarrier& full = pipe.acquire(at);
                    full.arrive_expect(A_BYTES + B_BYTES);
                    load<A_MN, A_ROWS, SHARE_A>(stage + a_part * ROW, a, full, of_a,
                                                tile.row + a_part, from, 3 << pair);
                    stage += A_BYTES;
                    if constexpr (PAIR && SHARE_B) {
                        load<B_MN, B_ROWS, true>(stage + b_part * ROW, part ? up : b, full,
                                                 tile.batch, tile.column, from, 3 << pair);
                    } else {
                        load<B_MN, B_ROWS, SHARE_B>(stage + b_part * ROW, b, full, tile.batch,
                                                    tile.column + b_part, from, 3 << pair);
                        if constexpr (PAIR)
                            load<B_MN, B_ROWS, false>(stage + B_ROWS * ROW, up, full, tile.batch,
                                                      tile.column, from, 0);
                    }
                }
            }
            // Until the last stages are free: the other blocks still write to this one's barriers.
            for (int s = 0; CLUSTER > 1 && s < STAGES; ++s, at.next()) pipe.acquire(at);
        }
        __syncwarp();
        if constexpr (SPLIT) dotcu::cluster_sync();  // the consumers' parts are there
    } else {
        dotcu::registers_up<232>();
        const int share = TURNS ? 0 : warpgroup;
        const int first_row = share % S::down * S::rows;
        const int first_column = share / S::down * S::columns;
        const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
        if constexpr (FLAGS & SCALES) alpha *= *scale_a * *scale_b;
        const Epilogue<FLAGS, Extra> epilogue{bias, other, scale_a, scale_b, alpha, beta, m, n};
        unsigned char* boxes = memory + STAGES * (A_BYTES + B_BYTES) + warpgroup * C_BOXES * BOX;
        constexpr int OUT_COLUMNS = PAIR ? S::columns / 2 : S::columns;
        constexpr int IN_ROW = (OUT_COLUMNS + BOX_COLUMNS - 1) / BOX_COLUMNS;
        static_assert(SPLIT || OUT_COLUMNS >= BOX_COLUMNS, "a whole box of results");
        static_assert(!PAIR || S::across == 1, "both products of a pair");
        auto free = [&](dotcu::ring<STAGES> used) {
            CLUSTER > 1 ? pipe.release(used, pair + thread) : pipe.release(used);
        };
        float d[S::high][S::columns / 2];
        at.skip(turn * steps);
        if (turn) dotcu::named_arrive(4, 128 * CONSUMERS);  // the first turn is the other's
        for (; more; go(TURNS ? CONSUMERS : 1)) {
            const int batch = FLAGS & GROUPS ? 0 : tile.batch;
            const bool store = TMA_STORE && (!(FLAGS & GROUPS) || tile.row + BM <= end);
            float of_rows[S::high][2];  // scales, as those of columns: loaded while products go on
            float ahead[2] = {};
#pragma unroll
            for (int i = 0; i < (BY_COLUMN ? 2 : 0); ++i) {
                const int row = tile.row + first_row + 16 * warp + lane / 4 + 8 * i;
                const int column = min(tile.column + first_column + thread + 128 * i, n - 1);
#pragma unroll
                for (int h = 0; FLAGS & ROW_SCALES && h < S::high; ++h)
                    of_rows[h][i] = scale_a[min(row + 64 * h, m - 1)];
                ahead[i] = FLAGS & ROW_SCALES ? scale_b[column] : static_cast<float>(bias[column]);
            }
            if (TURNS) dotcu::named_sync(4 + turn, 128 * CONSUMERS);
            dotcu::ring<STAGES> used = at;
            for (int step = 0; step < steps; ++step) {
                pipe.wait(at);
                const unsigned char* stage = memory + at.stage * (A_BYTES + B_BYTES);
                const unsigned char* of_a = stage + first_row * ROW;
                const unsigned char* of_b =
                    stage + A_BYTES +
                    (B_MN ? first_column / 64 * BOX + first_column % 64 * 2 : first_column * ROW);
                const auto x = A_MN ? dotcu::mn_major(of_a, BOX) : dotcu::k_major(of_a);
                const auto y = B_MN ? dotcu::mn_major(of_b, BOX) : dotcu::k_major(of_b);
                dotcu::wgmma_fence(d);
#pragma unroll
                for (int i = 0; i < ROW / 32; ++i) {
#pragma unroll
                    for (int h = 0; h < S::high; ++h)
                        dotcu::wgmma<T, T, A_MN, B_MN>(
                            d[h], x + h * BOX + i * (A_MN ? 16 * ROW : 32),
                            y + i * (B_MN ? 16 * ROW : 32), step > 0 || i > 0);
                }
                dotcu::wgmma_commit();
                at.next();
                if (step > 0) {
                    dotcu::wgmma_wait<1>(d);
                    if (thread < CLUSTER) free(used);
                    used.next();
                }
            }
            if (TURNS) dotcu::named_arrive(5 - turn, 128 * CONSUMERS), at.skip(steps);
            dotcu::wgmma_wait<0>(d, ahead);
            if (thread < CLUSTER) free(used);
            if constexpr (BY_COLUMN) {
                dotcu::named_sync(1 + warpgroup, 128);  // those of the last tile are read
#pragma unroll
                for (int i = thread; i < S::columns; i += 128)
                    of_columns[warpgroup][i] = ahead[i / 128];
                dotcu::named_sync(1 + warpgroup, 128);
            }

            if constexpr (SPLIT) {  // each part of the sums: `most` times eight columns of 64 rows
                constexpr int EIGHTS = S::columns / 8, ALL = S::high * EIGHTS;
                const int most = (ALL + splits - 1) / splits, first = split * most;
                auto all = reinterpret_cast<float4*>(memory + APART * STAGES * (A_BYTES + B_BYTES));
                all += warpgroup * splits * most * 128 + thread;
                auto of = [&](int i, int s) { return dotcu::shared_of(all + 128 * i, s + part); };
                if (!APART) dotcu::named_sync(1 + CONSUMERS, 128 * CONSUMERS);  // stages are read
#pragma unroll
                for (int i = 0; i < ALL; ++i) {
                    const float* x = &d[i / EIGHTS][i % EIGHTS * 4];
                    *(APART ? of(first + i % most, i / most * CLUSTER) : all + i * 128) =
                        float4{x[0], x[1], x[2], x[3]};
                }
                dotcu::cluster_sync();
                for (int i = first; i < min(first + most, ALL); ++i) {
                    float x[4] = {};
#pragma unroll 4
                    for (int s = 0; s < splits; ++s) {
                        const float4 y =
                            APART ? all[(s * most + i - first) * 128] : *of(i, s * CLUSTER);
                        x[0] += y.x, x[1] += y.y, x[2] += y.z, x[3] += y.w;
                    }
                    const int row = tile.row + first_row + i / EIGHTS * 64 + 16 * warp + lane / 4;
                    const int column = tile.column + first_column + i % EIGHTS * 8 + lane % 4 * 2;
                    epilogue(x, batch, row, column);
                    write_quad(out + static_cast<long long>(batch) * m * n, m, n, row, column, x);
                }
            }

#pragma unroll
            for (int i = 0; i < (SPLIT ? 0 : S::high * IN_ROW); ++i) {  // a row's last may overlap
                const int h = i / IN_ROW;
                const int from = min(i % IN_ROW * BOX_COLUMNS, OUT_COLUMNS - BOX_COLUMNS);
                const int row = tile.row + first_row + 64 * h;
                const int column = tile.column + first_column;
                unsigned char* box = boxes + i % C_BOXES * BOX;
                if (store) {  // the store that last used the box has read it
                    if (thread == 0) dotcu::tma_wait<C_BOXES - 1>();
                    dotcu::named_sync(1 + warpgroup, 128);
                }
#pragma unroll
                for (int c = from; c < from + BOX_COLUMNS; c += 16) {
                    float x[2][4];
#pragma unroll
                    for (int j = 0; j < 2; ++j) {
                        const int first = c / 2 + 4 * j;
#pragma unroll
                        for (int l = 0; l < 4; ++l) x[j][l] = d[h][first + l];
                        if constexpr (PAIR) {
                            const float* second = &d[h][S::columns / 4 + first];
                            epilogue.pair(x[j], {second[0], second[1], second[2], second[3]});
                        } else {
                            const int at = c + 8 * j + lane % 4 * 2;
                            const float* by = &of_columns[warpgroup][BY_COLUMN ? at : 0];
                            epilogue(x[j], of_rows[h], by, batch, row + 16 * warp + lane / 4,
                                     column + at);
                        }
                    }
                    if (store)
                        put<Out>(box, 16 * warp, c - from, lane, x);
                    else
#pragma unroll
                        for (int j = 0; j < 2; ++j)
                            write_quad(out + static_cast<long long>(batch) * m * n, end, n,
                                       row + 16 * warp + lane / 4,
                                       column + c + 8 * j + lane % 4 * 2, x[j]);
                }
                if (store) {
                    dotcu::tma_fence();
                    dotcu::named_sync(1 + warpgroup, 128);
                    if (thread == 0) {
                        dotcu::tma_store(out_map, box, batch, row, column + from);
                        dotcu::tma_commit();
                    }
                }
            }
        }
        if (TMA_STORE && thread == 0) dotcu::tma_wait<0>();
    }
    if constexpr (FLAGS & GROUPS) zero_rest(out, ends, batches, m, n);
    if constexpr (SPLIT && !APART) dotcu::cluster_sync();  // others still read this shared memory
}
