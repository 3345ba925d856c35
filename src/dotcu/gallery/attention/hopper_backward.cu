// attention on Hopper, backward: the gradients by q, k and v.
//
//     dv[j] = sum over i of p[i][j] * dout[i]
//     ds[i][j] = p[i][j] * (dout[i] . v[j] - delta[i]),   delta[i] = dout[i] . out[i]
//     dk[j] = scale * sum over i of ds[i][j] * q[i]
//     dq[i] = scale * sum over j of ds[i][j] * k[j]
//
//     attention_rows        delta, lse as the others read them, zeros for the sums of dq
//     attention_backward    dk and dv of 128 keys, and their part of dq
//     attention_round       the sums of dq as T
//
// hopper_queries.cu has dq without sums in memory, for results that are the
// same in every run. Where the registers do not hold both, dk and dv are two
// launches.
//
// Idea: two warpgroups have 64 keys each, and go along the queries, M at a
// time, that a thread of another one copies by TMA. They compute p and ds
// transposed, so that both are an operand from registers of the products that
// give dv and dk, whose sums stay in registers. Only dq needs ds in shared
// memory, and sums in global memory, to which every block of keys adds: in
// float, by vectors, in the order in which an accumulator lies in registers.
// The scores of the next step are issued before the sums are added.
//
// Rows of lse, delta and of the sums begin at multiples of M for each sequence. In packed ones TMA
// reads rows of the next sequence, too: zeros take their place before a product adds over them.
//
// Cost: 10 B H queries keys d FLOPs, half of them where causal.
#include <dotcu/vector.cuh>

#include "tiles.cuh"

template <typename T, int D, int M, bool SUMS>
__global__ void __launch_bounds__(256)
    attention_rows(dotcu::tensor<const T, 4> out, dotcu::tensor<const T, 4> grad, const float* lse,
                   float* lse2, float* delta, float* sums, const int* starts, int sequences,
                   long long all_rows) {
    const int head = blockIdx.y, heads = gridDim.y;
    const Sequence own = block_at(starts, sequences, M, blockIdx.x, out.size(2));
    const int batch = starts ? 0 : own.index;
    const long long to = head * all_rows + (long long)blockIdx.x * M;
    if (own.block * M >= own.count) return;
    constexpr int lanes = D <= 64 ? 8 : D <= 128 ? 16 : 32;  // of a row, with 8 columns each
    const int lane = threadIdx.x % lanes;
#pragma unroll
    for (int i = threadIdx.x / lanes; i < M; i += 256 / lanes) {
        const int row = own.start + own.block * M + i;
        const bool inside = own.block * M + i < own.count;
        float sum = 0;
        if (inside && lane * 8 < out.size(3)) {
            using Chunk = dotcu::vector<T, 8>;
            const auto x = *reinterpret_cast<const Chunk*>(&out(batch, head, row, lane * 8));
            const auto y = *reinterpret_cast<const Chunk*>(&grad(batch, head, row, lane * 8));
#pragma unroll
            for (int c = 0; c < 8; ++c) sum += static_cast<float>(x[c]) * static_cast<float>(y[c]);
        }
        for (int other = lanes / 2; other > 0; other /= 2) {
            sum += __shfl_xor_sync(~0u, sum, other);
        }
        if (lane > 0) continue;
        const long long at = ((long long)batch * heads + head) * out.size(2) + row;
        const float x = inside ? lse[at] : infinity;
        lse2[to + i] = x == -infinity ? infinity : x * log2_e;  // exp2(s - infinity) is 0
        delta[to + i] = sum;
    }
    if constexpr (SUMS) {
        constexpr int columns = (D + 63) / 64 * 64;
        auto* at = reinterpret_cast<float4*>(sums + to * columns);
        for (int i = threadIdx.x; i < M * columns / 4; i += 256) at[i] = float4{};
    }
}

template <typename T, int D, int M>
struct alignas(1024) SharedKeys {
    static constexpr int stages = 2, chunks = (D + 63) / 64;
    T k[chunks][128][64], v[chunks][128][64];
    T q[stages][chunks][M][64], grad[stages][chunks][M][64];
    T ds[2][(M + 63) / 64][128][64];  // [key][query]
    float lse[stages][M], delta[stages][M];
    dotcu::pipeline<stages> of_q, of_grad;
    dotcu::mbarrier of_keys;
};

template <typename T, int D, int M, int MASKED, bool CAPPED, bool DK, bool DV, bool DQ, bool PACKED>
__global__ void __launch_bounds__(384, 1)
    attention_backward(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                       const __grid_constant__ CUtensorMap v,
                       const __grid_constant__ CUtensorMap grad, const float* lse,
                       const float* delta, float* sums, dotcu::tensor<T, 4> by_k,
                       dotcu::tensor<T, 4> by_v, const int* query_starts, const int* key_starts,
                       int sequences, int group_size, int queries, int keys, int rows,
                       long long all_rows, int together, int left, int right, float scale,
                       float cap) {
    constexpr Mask MASK = static_cast<Mask>(MASKED);
    extern __shared__ __align__(1024) char memory[];
    using S = SharedKeys<T, D, M>;
    S& shared = *reinterpret_cast<S*>(memory);
    constexpr int stages = S::stages, chunks = S::chunks;
    const int heads = by_k.size(1);
    int batch = 0, head = blockIdx.x % heads, query_start = 0, key_start = 0, block;
    long long row_start;
    if constexpr (PACKED) {
        const Sequence own = sequence_at(key_starts, sequences, 128, blockIdx.x / heads, keys);
        const Sequence seeing = sequence_of(query_starts, sequences, own.index, queries);
        block = own.block, keys = own.count, key_start = own.start;
        query_start = seeing.start, queries = seeing.count;
        row_start = (query_start / M + own.index) * (long long)M;
        if (128 * block >= keys) return;
    } else {
        const int blocks = (keys + 127) / 128, of_group = together * blocks;
        const int start = blockIdx.x / of_group * together;
        const int count = min(together, static_cast<int>(gridDim.x) / blocks - start);
        const int pair = start + blockIdx.x % of_group % count;
        block = blockIdx.x % of_group / count;  // those that the most queries see first
        head = pair % heads, batch = pair / heads;
        row_start = (long long)batch * rows;
    }
    const int first_key = 128 * block;
    // The steps: M queries each, those that see a key, of each head of the group.
    const int begin = MASK == all_keys ? 0 : max(0, first_key - right) / M;
    const int seen = MASK == window ? min(queries, first_key + 128 + left) : queries;
    const int of_head = max(0, (seen + M - 1) / M - begin), steps = of_head * group_size;
    if (threadIdx.x == 0) {
        shared.of_q.init(1, 2), shared.of_grad.init(1, 2), shared.of_keys.init(1);
    }
    __syncthreads();
    dotcu::ring<stages> at;

    if (threadIdx.x < 128) {
        dotcu::registers_down<24>();
        if (threadIdx.x > 0) return;
        shared.of_keys.arrive_expect(sizeof(shared.k) + sizeof(shared.v));
        for (int c = 0; c < chunks; ++c) {
            const int key = key_start + first_key;
            dotcu::tma_load(shared.k[c], k, shared.of_keys, batch, head, key, 64 * c);
            dotcu::tma_load(shared.v[c], v, shared.of_keys, batch, head, key, 64 * c);
        }
        int query_head = head * group_size, query = begin * M;
        for (int step = 0; step < steps; ++step, at.next(), query += M) {
            if (query == (begin + of_head) * M) ++query_head, query = begin * M;
            const long long row = query_head * all_rows + row_start + query;
            auto& q_full = shared.of_q.acquire(at);
            q_full.arrive_expect(sizeof(shared.q) / stages + M * sizeof(float));
            for (int c = 0; c < chunks; ++c) {
                dotcu::tma_load(shared.q[at.stage][c], q, q_full, batch, query_head,
                                query_start + query, 64 * c);
            }
            copy_floats(shared.lse[at.stage], lse + row, M, q_full);
            auto& grad_full = shared.of_grad.acquire(at);
            grad_full.arrive_expect(sizeof(shared.grad) / stages + M * sizeof(float));
            for (int c = 0; c < chunks; ++c) {
                dotcu::tma_load(shared.grad[at.stage][c], grad, grad_full, batch, query_head,
                                query_start + query, 64 * c);
            }
            copy_floats(shared.delta[at.stage], delta + row, M, grad_full);
        }
        return;
    }

    dotcu::registers_up<240>();
    const int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, lane = thread % 32;
    const int own = 64 * group + thread / 32 * 16 + lane / 4, key = first_key + own;
    const float factor = (CAPPED ? cap : scale) * log2_e;
    float dk[DK ? D / 2 : 1] = {}, dv[DV ? D / 2 : 1] = {}, s[M / 2], dp[M / 2], dq[32];
    unsigned p[M / 16][4], ds[M / 16][4];

    const auto issue_scores = [&](dotcu::ring<stages> at) {
        const auto a = dotcu::k_major(&shared.k[0][64 * group]);
        const auto b = dotcu::k_major(shared.q[at.stage]);
        dotcu::wgmma_fence(s);
#pragma unroll
        for (int i = 0; i < D / 16; ++i) {
            dotcu::wgmma<T>(s, a + (i / 4 * 128 * 128 + i % 4 * 32),
                            b + (i / 4 * 128 * M + i % 4 * 32), i > 0);
        }
        dotcu::wgmma_commit();
    };
    shared.of_keys.wait(0);
    if (PACKED && DQ && first_key + 128 > keys) {
        clear_rows(shared.k, keys - first_key, threadIdx.x - 128, 256);
        clear_rows(shared.v, keys - first_key, threadIdx.x - 128, 256);
        dotcu::tma_fence();
        dotcu::named_sync(1, 256);
    }
    dotcu::keep_here(dk), dotcu::keep_here(dv);
    if (steps > 0) {
        shared.of_q.wait(at);
        issue_scores(at);
        dotcu::wgmma_wait<0>(s);
    }
    int query_head = head * group_size, query = begin * M;
#pragma unroll 1
    for (int step = 0; step < steps; ++step, query += M) {
        if (query == (begin + of_head) * M) ++query_head, query = begin * M;
        shared.of_grad.wait(at);
        if (PACKED && query + M > queries) {
            dotcu::named_sync(1, 256);  // both have their scores
            clear_rows(shared.q[at.stage], queries - query, threadIdx.x - 128, 256);
            clear_rows(shared.grad[at.stage], queries - query, threadIdx.x - 128, 256);
            dotcu::tma_fence();
            dotcu::named_sync(1, 256);
        }
        if constexpr (DK || DQ) {
            const auto a = dotcu::k_major(&shared.v[0][64 * group]);
            const auto b = dotcu::k_major(shared.grad[at.stage]);
            dotcu::wgmma_fence(dp);
#pragma unroll
            for (int i = 0; i < D / 16; ++i) {
                dotcu::wgmma<T>(dp, a + (i / 4 * 128 * 128 + i % 4 * 32),
                                b + (i / 4 * 128 * M + i % 4 * 32), i > 0);
            }
            dotcu::wgmma_commit();
        }
        float slope[CAPPED ? M / 2 : 1];
        if constexpr (CAPPED) {
#pragma unroll
            for (int i = 0; i < M / 2; ++i) {
                s[i] = tanh_of(s[i] * (scale / cap));
                slope[i] = 1 - s[i] * s[i];
            }
        }
        const bool whole = first_key + 128 <= keys && query + M <= queries &&
                           (MASK == all_keys || first_key + 127 <= query + right) &&
                           (MASK != window || first_key >= query + M - 1 - left);
        if (!whole) {
#pragma unroll
            for (int i = 0; i < M / 2; ++i) {
                const int j = key + i / 2 % 2 * 8, at = query + i / 4 * 8 + lane % 4 * 2 + i % 2;
                const bool sees = j < keys && at < queries &&
                                  (MASK == all_keys || j <= at + right) &&
                                  (MASK != window || j >= at - left);
                if (!sees) {
                    s[i] = -infinity;
                    if constexpr (CAPPED) slope[i] = 0;  // the next sequence's may be NaN
                }
            }
        }
#pragma unroll
        for (int i = 0; i < M / 2; i += 4) {
            const float2 l =
                *reinterpret_cast<const float2*>(&shared.lse[at.stage][i * 2 + lane % 4 * 2]);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                s[i + e] = exp2_of(s[i + e] * factor - (e % 2 ? l.y : l.x));
            }
            p[i / 8][i % 8 / 2] = pack<T>(s[i], s[i + 1]);
            p[i / 8][i % 8 / 2 + 1] = pack<T>(s[i + 2], s[i + 3]);
        }
        dotcu::keep_here(p);
        const auto before = at;
        at.next();
        if constexpr (DK || DQ) {
            dotcu::wgmma_wait<0>(dp);
#pragma unroll
            for (int i = 0; i < M / 2; i += 4) {
                const float2 d = *reinterpret_cast<const float2*>(
                    &shared.delta[before.stage][i * 2 + lane % 4 * 2]);
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    s[i + e] *= dp[i + e] - (e % 2 ? d.y : d.x);
                    if constexpr (CAPPED) s[i + e] *= slope[i + e];
                }
                ds[i / 8][i % 8 / 2] = pack<T>(s[i], s[i + 1]);
                ds[i / 8][i % 8 / 2 + 1] = pack<T>(s[i + 2], s[i + 3]);
            }
        }
        if constexpr (DV) {
            const auto b = dotcu::mn_major(shared.grad[before.stage], 128 * M);
            dotcu::wgmma_fence(dv);
#pragma unroll
            for (int i = 0; i < M / 16; ++i) dotcu::wgmma<T, T, true>(dv, p[i], b + i * 16 * 128);
            dotcu::wgmma_commit();
        }
        if constexpr (DK) {
            const auto b = dotcu::mn_major(shared.q[before.stage], 128 * M);
            dotcu::wgmma_fence(dk);
#pragma unroll
            for (int i = 0; i < M / 16; ++i) dotcu::wgmma<T, T, true>(dk, ds[i], b + i * 16 * 128);
            dotcu::wgmma_commit();
        }
        if constexpr (DQ) {
            auto& tile = shared.ds[step % 2];
#pragma unroll
            for (int i = 0; i < M / 4; ++i) {  // pairs of queries
                const int j = own + i % 2 * 8, c = i / 2 % 8 ^ j % 8;
                *reinterpret_cast<unsigned*>(&tile[i / 16][j][c * 8 + lane % 4 * 2]) =
                    ds[i / 4][i % 4];
            }
            dotcu::tma_fence();
            dotcu::named_sync(1, 256);
            const auto a = dotcu::mn_major(shared.k[M == 64 ? group : 0], 128 * 128);
            const auto b = dotcu::mn_major(tile[M == 64 ? 0 : group], 128 * 128);
            dotcu::wgmma_fence(dq);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                dotcu::wgmma<T, T, true, true>(dq, a + i * 16 * 128, b + i * 16 * 128, i > 0);
            }
            dotcu::wgmma_commit();
        }
        dotcu::wgmma_wait<DQ ? 1 : 0>(dv, dk);
        if (step + 1 < steps) shared.of_q.wait(at);
        issue_scores(step + 1 < steps ? at : before);          // the last ones are not used
        if constexpr (!DQ) dotcu::named_sync(2 + group, 128);  // all warps have read lse and delta
        if (thread == 0) shared.of_q.release(before), shared.of_grad.release(before);
        dotcu::wgmma_wait<1>(dq);
        if constexpr (DQ) {
            float* to = sums + (query_head * all_rows + row_start + query) * (64 * chunks) +
                        group * 4096 + thread * 4;
#pragma unroll
            for (int i = 0; i < 32; i += 4) {
                asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + i * 128),
                             "f"(dq[i]), "f"(dq[i + 1]), "f"(dq[i + 2]), "f"(dq[i + 3])
                             : "memory");
            }
        }
        dotcu::wgmma_wait<0>(s);
    }
    const auto store = [&](const dotcu::tensor<T, 4>& out, const float (&sum)[D / 2],
                           float factor) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            T* row = out.data + batch * out.stride(0) + head * out.stride(1) +
                     (key_start + key + 8 * h) * out.stride(2);
            store_row<T, D>(row, out.size(3), key + 8 * h < keys, sum, h, factor);
        }
    };
    if constexpr (DK) store(by_k, dk, scale);
    if constexpr (DV) store(by_v, dv, 1);
}

// dq = scale * sums, of M queries of a head; the sums lie as the accumulators
// of two warpgroups.
template <typename T, int D, int M>
__global__ void __launch_bounds__(256)
    attention_round(const float* sums, dotcu::tensor<T, 4> by_q, const int* starts, int sequences,
                    long long all_rows, float scale) {
    constexpr int columns = (D + 63) / 64 * 64;
    __shared__ float tile[M][columns + 1];
    const int head = blockIdx.y, thread = threadIdx.x % 128, group = threadIdx.x / 128;
    const Sequence own = block_at(starts, sequences, M, blockIdx.x, by_q.size(2));
    const int batch = starts ? 0 : own.index, first = own.block * M;
    const long long from = head * all_rows + (long long)blockIdx.x * M;
    if (first >= own.count) return;
    for (int i = 0; i < 32; i += 4) {
        const auto x = *reinterpret_cast<const float4*>(sums + from * columns + group * 4096 +
                                                        i * 128 + thread * 4);
        const int column = thread / 32 * 16 + thread % 32 / 4 + (M == 64 ? 64 * group : 0);
        const int row = i * 2 + thread % 4 * 2 + (M == 64 ? 0 : 64 * group);
        tile[row][column] = x.x, tile[row + 1][column] = x.y;
        tile[row][column + 8] = x.z, tile[row + 1][column + 8] = x.w;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < M * columns / 2; i += 256) {
        const int row = i / (columns / 2), column = i % (columns / 2) * 2;
        if (first + row >= own.count || column >= by_q.size(3)) continue;
        T* to = by_q.data + batch * by_q.stride(0) + head * by_q.stride(1) +
                (own.start + first + row) * by_q.stride(2) + column;
        *reinterpret_cast<unsigned*>(to) =
            pack<T>(tile[row][column] * scale, tile[row][column + 1] * scale);
    }
}
