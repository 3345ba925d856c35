// attention on Hopper: what kernel.cu computes, by wgmma, TMA and mbarriers.
//
//     out[b][h][i] = sum over j of p[i][j] * v[b][g][j],   g = h / (heads / heads of k)
//     p[i][j] = exp(s[i][j] - lse[b][h][i]),   lse = log(sum over j of exp(s[i][j]))
//     s[i][j] = scale * q[b][h][i] . k[b][g][j], or cap * tanh(that / cap)
//
// q, out: (B, H, queries, d), k, v: (B, heads of k, keys, d), strided in all but the last
// dimension; d <= D, what is missing is zeros that TMA fills in. Query i sees the keys i - left to
// i + right. Packed sequences are one batch, with the first rows of each in `query_starts` and
// `key_starts`: TMA reads rows of the next sequence, too, which consumers replace by zeros.
//
// Idea: a tile is 64 queries for each consumer warpgroup. One thread of another warpgroup copies
// keys and values by TMA into a ring of stages, N at a time, from the last that are seen to the
// first. A consumer keeps its sums over p and over p * v for the largest score so far
// (FlashAttention: Dao et al. 2022). Two products are always on their way: the scores of a step are
// issued before the product with v of the step before, so that the softmax of a step runs under
// it (FlashAttention-3: Shah et al. 2024); and while a warpgroup computes exponentials another one
// has the tensor cores: named barriers give it the turn. p goes from the registers of one product
// into those of the next without moving, as an accumulator is laid out as an operand is.
//
// Blocks are as many as multiprocessors and take tiles from a counter, the longest first where rows
// differ, and so that the keys of `together` heads stay in L2.
//
// Cost: 4 B H queries keys d FLOPs, half of them where causal. Bound by the tensor cores, then by
// exp2, of which there are D / 4 times fewer.
#include "tiles.cuh"

// The queries of a tile: 64 * GROUPS from `row` of a head; it sees key blocks first .. end - 1.
struct Tile {
    int batch, head, row, first, end, queries, keys, query_start, key_start;
    bool last;
};

template <typename T, int D, int N, int GROUPS>
struct alignas(1024) Shared {
    static constexpr int stages = 2, chunks = (D + 63) / 64;
    static constexpr int ahead = chunks * 128 * (2 * 64 * GROUPS + 4 * N) <= 224 << 10 ? 2 : 1;
    T q[ahead][chunks][64 * GROUPS][64];  // in chunks of 128 bytes a row, swizzled
    T k[stages][chunks][N][64], v[stages][chunks][N][64];
    dotcu::pipeline<stages> of_k, of_v;
    dotcu::pipeline<ahead> of_q;
    Tile tile[ahead];
};

// Where tile `index` is. `row_blocks`: of a head, or of a head in all sequences together.
template <int N, int ROWS, Mask MASK, bool PACKED>
__device__ Tile tile_at(int index, int row_blocks, int tiles, int together, int heads, int queries,
                        int keys, int left, int right, const int* query_starts,
                        const int* key_starts, int sequences) {
    Tile tile{};
    if constexpr (PACKED) {
        const Sequence own = sequence_at(query_starts, sequences, ROWS, index / heads, queries);
        const Sequence seen = sequence_of(key_starts, sequences, own.index, keys);
        const int blocks = (own.count + ROWS - 1) / ROWS;
        tile.head = index % heads, tile.query_start = own.start, tile.queries = own.count;
        tile.row =
            ROWS * (MASK == all_keys || own.block >= blocks ? own.block : blocks - 1 - own.block);
        tile.key_start = seen.start, tile.keys = seen.count;
    } else {
        const int of_group = together * row_blocks, group = index / of_group;
        const int all_heads = tiles / row_blocks, start = group * together;
        const int count = min(together, all_heads - start);
        const int block = index % of_group / count, pair = start + index % of_group % count;
        tile.batch = pair / heads, tile.head = pair % heads;
        tile.row = ROWS * (MASK == all_keys ? block : row_blocks - 1 - block);
        tile.queries = queries, tile.keys = keys;
    }
    const int seen = MASK == all_keys ? tile.keys : max(0, min(tile.keys, tile.row + ROWS + right));
    tile.end = (seen + N - 1) / N;
    tile.first = MASK == window ? min(tile.end, max(0, tile.row - left) / N) : 0;
    return tile;
}

template <typename T, int D, int N, int GROUPS, int MASKED, bool CAPPED, bool PACKED>
__global__ void __launch_bounds__(128 * (GROUPS + 1), 1)
    attention(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
              const __grid_constant__ CUtensorMap v, dotcu::tensor<T, 4> out, float* lse,
              int* counter, const int* query_starts, const int* key_starts, int sequences,
              int group_size, int queries, int keys, int row_blocks, int tiles, int together,
              int left, int right, float scale, float cap) {
    constexpr Mask MASK = static_cast<Mask>(MASKED);
    constexpr int ROWS = 64 * GROUPS;
    extern __shared__ __align__(1024) char memory[];
    using S = Shared<T, D, N, GROUPS>;
    S& shared = *reinterpret_cast<S*>(memory);
    constexpr int stages = S::stages, chunks = S::chunks, consumers = 128 * GROUPS;
    const int heads = out.size(1), columns = out.size(3);
    if (threadIdx.x == 0) {
        shared.of_q.init(1, GROUPS), shared.of_k.init(1, GROUPS), shared.of_v.init(1, GROUPS);
    }
    __syncthreads();
    dotcu::ring<S::ahead> turn;
    dotcu::ring<stages> at;

    if (threadIdx.x < 128) {
        dotcu::registers_down<GROUPS == 2 ? 24 : 32>();
        if (threadIdx.x > 0) return;
        for (int index = blockIdx.x;;
             index = counter ? gridDim.x + atomicAdd(counter, 1) : index + gridDim.x) {
            Tile tile{};
            tile.last = index >= tiles;
            if (!tile.last) {
                tile = tile_at<N, ROWS, MASK, PACKED>(index, row_blocks, tiles, together, heads,
                                                      queries, keys, left, right, query_starts,
                                                      key_starts, sequences);
                if (tile.row >= tile.queries) continue;
            }
            auto& q_full = shared.of_q.acquire(turn);
            shared.tile[turn.stage] = tile;
            if (tile.last) {
                q_full.arrive();
                return;
            }
            const int head = tile.head / group_size;
            q_full.arrive_expect(sizeof(shared.q) / S::ahead);
            for (int c = 0; c < chunks; ++c) {
                dotcu::tma_load(shared.q[turn.stage][c], q, q_full, tile.batch, tile.head,
                                tile.query_start + tile.row, 64 * c);
            }
            turn.next();
            for (int j = tile.end - 1; j >= tile.first; --j, at.next()) {
                const int key = tile.key_start + j * N;
                auto& k_full = shared.of_k.acquire(at);
                k_full.arrive_expect(sizeof(shared.k) / stages);
                for (int c = 0; c < chunks; ++c) {
                    dotcu::tma_load(shared.k[at.stage][c], k, k_full, tile.batch, head, key,
                                    64 * c);
                }
                auto& v_full = shared.of_v.acquire(at);
                v_full.arrive_expect(sizeof(shared.v) / stages);
                for (int c = 0; c < chunks; ++c) {
                    dotcu::tma_load(shared.v[at.stage][c], v, v_full, tile.batch, head, key,
                                    64 * c);
                }
            }
        }
    }

    dotcu::registers_up<GROUPS == 2 ? 240 : 160>();
    const int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, lane = thread % 32;
    const int other = (group + 1) % GROUPS;
    const float factor = (CAPPED ? cap : scale) * log2_e;
    if (group == GROUPS - 1) dotcu::named_arrive(1, 256);  // the first turn is the first group's
    for (;; turn.next()) {
        shared.of_q.wait(turn);
        const Tile tile = shared.tile[turn.stage];
        if (tile.last) break;
        const int first_row = tile.row + 64 * group, row = first_row + thread / 32 * 16 + lane / 4;
        float s[N / 2], o[D / 2] = {}, top[2] = {-infinity, -infinity}, sum[2] = {}, shrink[2];
        unsigned p[N / 16][4];

        const auto issue_scores = [&] {
            const auto a = dotcu::k_major(&shared.q[turn.stage][0][64 * group]);
            const auto b = dotcu::k_major(shared.k[at.stage]);
            dotcu::wgmma_fence(s);
#pragma unroll
            for (int i = 0; i < D / 16; ++i) {
                dotcu::wgmma<T>(s, a + (i / 4 * 128 * ROWS + i % 4 * 32),
                                b + (i / 4 * 128 * N + i % 4 * 32), i > 0);
            }
            dotcu::wgmma_commit();
        };
        const auto issue_values = [&](int stage) {
            const auto b = dotcu::mn_major(shared.v[stage], 128 * N);
            dotcu::wgmma_fence(o);
#pragma unroll
            for (int i = 0; i < N / 16; ++i) {
                dotcu::wgmma<T, T, true>(o, p[i], b + i * 16 * 128);
            }
            dotcu::wgmma_commit();
        };
        const auto mask = [&](int j) {
            const bool whole = (j + 1) * N <= tile.keys &&
                               (MASK == all_keys || (j + 1) * N <= first_row + right + 1) &&
                               (MASK != window || j * N >= first_row + 63 - left);
            if (whole) return;
#pragma unroll
            for (int i = 0; i < N / 2; ++i) {
                const int key = j * N + i / 4 * 8 + lane % 4 * 2 + i % 2,
                          query = row + i / 2 % 2 * 8;
                const bool seen = key < tile.keys && (MASK == all_keys || key <= query + right) &&
                                  (MASK != window || key >= query - left);
                if (!seen) s[i] = -infinity;
            }
        };
        // s -> p in float; `shrink` is what earlier sums are multiplied by.
        const auto softmax = [&](int j) {
            if constexpr (CAPPED) {
#pragma unroll
                for (float& x : s) x = tanh_of(x * (scale / cap));
            }
            mask(j);
            float high[2] = {top[0], top[1]};
#pragma unroll
            for (int i = 0; i < N / 2; ++i) high[i / 2 % 2] = fmaxf(high[i / 2 % 2], s[i]);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                high[h] = row_max(high[h]);
                const float most = high[h] == -infinity ? 0 : high[h];
                // Where a base was rounded, all powers of its step are off by the same.
                shrink[h] =
                    exp2_of(GROUPS == 2 ? (top[h] - most) * factor
                                        : __fmul_rn(top[h], factor) - __fmul_rn(most, factor));
                top[h] = high[h], high[h] = most;
                sum[h] *= shrink[h];
            }
            const float farthest = fmaxf(fabsf(high[0]), fabsf(high[1])) * factor;
            if (GROUPS == 2 && __any_sync(~0u, farthest > far_off)) {  // else registers are short
#pragma unroll
                for (int i = 0; i < N / 2; ++i) s[i] -= high[i / 2 % 2];
                high[0] = high[1] = 0;
            }
            const float base[2] = {__fmul_rn(high[0], factor), __fmul_rn(high[1], factor)};
#pragma unroll
            for (int i = 0; i < N / 2; ++i) {
                s[i] = exp2_of(fmaf(s[i], factor, -base[i / 2 % 2]));
                sum[i / 2 % 2] += s[i];
            }
        };
        const auto convert = [&] {
#pragma unroll
            for (int i = 0; i < N / 4; ++i) p[i / 4][i % 4] = pack<T>(s[2 * i], s[2 * i + 1]);
        };

        if (tile.first < tile.end) {
            shared.of_k.wait(at);
            dotcu::named_sync(1 + group, 256);
            issue_scores();
            dotcu::named_arrive(1 + other, 256);
            if (PACKED && tile.end * N > tile.keys) {
                shared.of_v.wait(at);
                clear_rows(shared.v[at.stage], tile.keys - (tile.end - 1) * N, threadIdx.x - 128,
                           consumers);
                dotcu::tma_fence();
                dotcu::named_sync(1 + 2 * GROUPS, consumers);
            }
            dotcu::wgmma_wait<0>(s);
            if (thread == 0) shared.of_k.release(at);
            softmax(tile.end - 1);
            convert();
#pragma unroll 1
            for (int j = tile.end - 2; j >= tile.first; --j) {
                const auto before = at;
                at.next();
                shared.of_k.wait(at);
                dotcu::named_sync(1 + group, 256);
                issue_scores();
                shared.of_v.wait(before);
                issue_values(before.stage);
                dotcu::named_arrive(1 + other, 256);
                dotcu::wgmma_wait<1>(s);
                if (thread == 0) shared.of_k.release(at);
                softmax(j);
                dotcu::wgmma_wait<0>(o);
                if (thread == 0) shared.of_v.release(before);
                convert();
#pragma unroll
                for (int i = 0; i < D / 2; ++i) o[i] *= shrink[i / 2 % 2];
            }
        }
        if (tile.first == tile.end) dotcu::named_sync(1 + GROUPS + group, 128);  // all have read it
        if (thread == 0) shared.of_q.release(turn);
        if (tile.first < tile.end) {
            shared.of_v.wait(at);
            issue_values(at.stage);
            dotcu::wgmma_wait<0>(o);
            if (thread == 0) shared.of_v.release(at);
            at.next();
        }

        T* base = out.data + tile.batch * out.stride(0) + tile.head * out.stride(1);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float all = row_sum(sum[h]), inverse = all != 0 ? 1 / all : 0;
            const bool inside = row + 8 * h < tile.queries;
            const long long i = tile.query_start + row + 8 * h;
            if (inside && lane % 4 == 0) {
                lse[((long long)tile.batch * heads + tile.head) * out.size(2) + i] =
                    all != 0 ? top[h] * factor * ln_2 + logf(all) : -infinity;
            }
            store_row<T, D>(base + i * out.stride(2), columns, inside, o, h, inverse);
        }
    }
    if (group == 0) dotcu::named_sync(1, 256);  // the arrival that is left
}
