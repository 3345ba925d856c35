// attention on Hopper, backward: the gradient by q alone, in the same order at every run.
//
//     dq[i] = scale * sum over j of ds[i][j] * k[j],   ds as in hopper_backward.cu
//
// Idea: two warpgroups keep 64 queries each, with their gradients, and go along the keys, N at a
// time. ds goes from the accumulators into the operand of the product with k. `padded`: rows of lse
// and delta for each sequence, or what they are a multiple of where sequences are packed.
//
// Cost: 6 B H queries keys d FLOPs, half of them where causal.
#include "tiles.cuh"

template <typename T, int D, int N>
struct alignas(1024) SharedQueries {
    static constexpr int stages = 2, chunks = (D + 63) / 64;
    T q[chunks][128][64], grad[chunks][128][64];
    T k[stages][chunks][N][64], v[stages][chunks][N][64];
    dotcu::pipeline<stages> of_keys;
    dotcu::mbarrier of_queries;
};

// d = a @ b.T for 64 rows of a, both in chunks of 64 columns, of `rows_a` and
// `rows_b` rows.
template <typename T, int D, int rows_a, int rows_b, int size>
__device__ void product(float (&d)[size], const void* a, const void* b) {
    const auto left = dotcu::k_major(a), right = dotcu::k_major(b);
    dotcu::wgmma_fence(d);
#pragma unroll
    for (int i = 0; i < D / 16; ++i) {
        dotcu::wgmma<T>(d, left + (i / 4 * 128 * rows_a + i % 4 * 32),
                        right + (i / 4 * 128 * rows_b + i % 4 * 32), i > 0);
    }
    dotcu::wgmma_commit();
}

template <typename T, int D, int N, int MASKED, bool CAPPED, bool PACKED>
__global__ void __launch_bounds__(384, 1)
    attention_queries(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                      const __grid_constant__ CUtensorMap v,
                      const __grid_constant__ CUtensorMap grad, const float* lse,
                      const float* delta, dotcu::tensor<T, 4> by_q, const int* query_starts,
                      const int* key_starts, int sequences, int group_size, int keys, int padded,
                      long long all_rows, int left, int right, float scale, float cap) {
    constexpr Mask MASK = static_cast<Mask>(MASKED);
    extern __shared__ __align__(1024) char memory[];
    using S = SharedQueries<T, D, N>;
    S& shared = *reinterpret_cast<S*>(memory);
    constexpr int stages = S::stages, chunks = S::chunks;
    const int heads = by_q.size(1), pairs = by_q.size(0) * heads, head = blockIdx.x % pairs % heads;
    int batch = blockIdx.x % pairs / heads, queries = by_q.size(2), query_start = 0, key_start = 0;
    int block = gridDim.x / pairs - 1 - blockIdx.x / pairs;  // the longest first
    long long row_start = (long long)batch * padded;
    if constexpr (PACKED) {
        const Sequence own = sequence_at(query_starts, sequences, 128, blockIdx.x / heads, queries);
        const Sequence seen = sequence_of(key_starts, sequences, own.index, keys);
        block = own.block, queries = own.count, query_start = own.start;
        key_start = seen.start, keys = seen.count;
        row_start = (query_start / padded + own.index) * (long long)padded;
        if (128 * block >= queries) return;
    }
    const int first_row = 128 * block;
    const int seen = MASK == all_keys ? keys : max(0, min(keys, first_row + 128 + right));
    const int end = (seen + N - 1) / N;
    const int begin = MASK == window ? min(end, max(0, first_row - left) / N) : 0;
    if (threadIdx.x == 0) shared.of_keys.init(1, 2), shared.of_queries.init(1);
    __syncthreads();
    dotcu::ring<stages> at;

    if (threadIdx.x < 128) {
        dotcu::registers_down<24>();
        if (threadIdx.x > 0) return;
        shared.of_queries.arrive_expect(sizeof(shared.q) + sizeof(shared.grad));
        for (int c = 0; c < chunks; ++c) {
            const int row = query_start + first_row;
            dotcu::tma_load(shared.q[c], q, shared.of_queries, batch, head, row, 64 * c);
            dotcu::tma_load(shared.grad[c], grad, shared.of_queries, batch, head, row, 64 * c);
        }
        for (int j = begin; j < end; ++j, at.next()) {
            auto& full = shared.of_keys.acquire(at);
            full.arrive_expect((sizeof(shared.k) + sizeof(shared.v)) / stages);
            for (int c = 0; c < chunks; ++c) {
                const int key = key_start + j * N;
                dotcu::tma_load(shared.k[at.stage][c], k, full, batch, head / group_size, key,
                                64 * c);
                dotcu::tma_load(shared.v[at.stage][c], v, full, batch, head / group_size, key,
                                64 * c);
            }
        }
        return;
    }

    dotcu::registers_up<240>();
    const int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, lane = thread % 32;
    const int row = first_row + 64 * group + thread / 32 * 16 + lane / 4;
    const float factor = (CAPPED ? cap : scale) * log2_e;
    float dq[D / 2] = {}, s[N / 2], dp[N / 2], logs[2], deltas[2];
    unsigned ds[N / 16][4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const long long i = head * all_rows + row_start + row + 8 * h;
        const bool inside = row + 8 * h < queries;
        logs[h] = inside ? lse[i] : infinity, deltas[h] = inside ? delta[i] : 0;
    }
    shared.of_queries.wait(0);
#pragma unroll 1
    for (int j = begin; j < end; ++j, at.next()) {
        shared.of_keys.wait(at);
        if (PACKED && (j + 1) * N > keys) {  // rows of the next sequence
            clear_rows(shared.k[at.stage], keys - j * N, threadIdx.x - 128, 256);
            clear_rows(shared.v[at.stage], keys - j * N, threadIdx.x - 128, 256);
            dotcu::tma_fence();
            dotcu::named_sync(1, 256);
        }
        product<T, D, 128, N>(s, &shared.q[0][64 * group], shared.k[at.stage]);
        product<T, D, 128, N>(dp, &shared.grad[0][64 * group], shared.v[at.stage]);
        dotcu::wgmma_wait<0>(s, dp);
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
            const int key = j * N + i / 4 * 8 + lane % 4 * 2 + i % 2, h = i / 2 % 2;
            const int query = row + 8 * h;
            const bool sees = key < keys && (MASK == all_keys || key <= query + right) &&
                              (MASK != window || key >= query - left);
            const float bent = CAPPED ? tanh_of(s[i] * (scale / cap)) : s[i];
            const float p = sees ? exp2_of(bent * factor - logs[h]) : 0;
            s[i] = p * (dp[i] - deltas[h]) * (CAPPED ? 1 - bent * bent : 1);
        }
#pragma unroll
        for (int i = 0; i < N / 4; ++i) ds[i / 4][i % 4] = pack<T>(s[2 * i], s[2 * i + 1]);
        const auto b = dotcu::mn_major(shared.k[at.stage], 128 * N);
        dotcu::wgmma_fence(dq);
#pragma unroll
        for (int i = 0; i < N / 16; ++i) dotcu::wgmma<T, T, true>(dq, ds[i], b + i * 16 * 128);
        dotcu::wgmma_commit();
        dotcu::wgmma_wait<0>(dq);
        if (thread == 0) shared.of_keys.release(at);
    }
    T* base = by_q.data + batch * by_q.stride(0) + head * by_q.stride(1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        store_row<T, D>(base + (query_start + row + 8 * h) * by_q.stride(2), by_q.size(3),
                        row + 8 * h < queries, dq, h, scale);
    }
}
