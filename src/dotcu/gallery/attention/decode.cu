// attention of the last queries of each sequence, with the keys and values of a paged cache.
//
//     out[b][i][h] = sum over j of softmax(s[i])[j] * v[j],   j <= lengths[b] - tokens + i
//
// q, out: (B, tokens, H, d); k, v: (pages, page size, heads of k, d) of equal strides; `table` has
// the pages of each sequence, `lengths` the number of its keys, its last `tokens` ones included.
//
// Idea: every byte of the cache is read once, and nothing else counts. A block has all queries that
// share a head of k, in rows padded to 16 * TILES for mma.sync, and a part of the keys. A step is
// 16 keys; the TILES warps that share steps, a slice, copy them into a ring of stages by cp.async,
// STAGES - 1 ahead, and wait for nobody else. As many parts as fill the GPU have a sequence's keys;
// attention_combine adds their results up, weighted by their log-sum-exp, in the same order at
// every run.
//
// Cost: 4 d bytes of the cache for each key and head of k. Bound by memory. Sources: Flash-Decoding
// (Dao et al. 2023); PagedAttention (Kwon et al. 2023).
#include <dotcu/async.cuh>
#include <dotcu/grid.cuh>
#include <dotcu/mma.cuh>

#include "tiles.cuh"

template <typename T, int D, int TILES, int STAGES>
struct alignas(128) SharedSteps {
    static constexpr int slices = 4, rows = 16 * TILES, columns = (D + 63) / 64 * 64;
    T k[slices][STAGES][16][columns], v[slices][STAGES][16][columns];
    T q[rows][columns];
    float top[slices][rows], sum[slices][rows];
};

// Chunk c, of 16 bytes, of a row: so that eight rows of a column of chunks are in different banks.
template <typename T, int columns>
__device__ T* chunk(T (*tile)[columns], int row, int c) {
    return &tile[row][(c ^ row % 8) * 8];
}

template <typename T, int D, int TILES, int STAGES, bool CAPPED>
__global__ void __launch_bounds__(128 * TILES)
    attention_decode(dotcu::tensor<const T, 4> q, dotcu::tensor<const T, 4> k,
                     dotcu::tensor<const T, 4> v, dotcu::tensor<const int, 2> table,
                     const int* lengths, dotcu::tensor<T, 4> out, float* lse, float* parts,
                     float* part_lse, int group, int left, float scale, float cap) {
    using S = SharedSteps<T, D, TILES, STAGES>;
    using Chunk = dotcu::vector<T, 8>;
    constexpr int slices = S::slices, rows = S::rows, columns = S::columns;
    extern __shared__ __align__(128) char memory[];
    S& shared = *reinterpret_cast<S*>(memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int slice = warp / TILES, tile = warp % TILES;
    const int heads = q.size(2), tokens = q.size(1), d = q.size(3), page_size = k.size(1);
    const int of_k = k.size(2), head = blockIdx.x % of_k, first_row = blockIdx.x / of_k * rows;
    const int batch = blockIdx.z,
              length = min(lengths[batch], static_cast<int>(table.size(1)) * page_size);
    const int before = length - tokens;  // the position of the first query
    // The keys of this part: first .. end - 1.
    const int seen = max(0, before - left), step = 16 * slices;
    const int part = (max(0, length - seen) + gridDim.y * step - 1) / (gridDim.y * step) * step;
    const int first = seen + blockIdx.y * part, end = min(length, first + part);
    const int own = first + 16 * slice, steps = max(0, end - own + step - 1) / step;

    // Where key lane % 16 of a step is in the cache; behind the end, the last one again.
    const auto place_of = [&](int t) -> long long {
        if (t >= steps) return 0;
        const int key = min(own + t * step + lane % 16, end - 1), page = key / page_size;
        return &k(table(batch, page), key - page * page_size, head, 0) - k.data;
    };
    const auto copy = [&](int t, long long place) {
        const int stage = t % STAGES;
#pragma unroll
        for (int i = tile * 32 + lane; i < 16 * (columns / 8); i += 32 * TILES) {
            const int r = i / (columns / 8), c = i % (columns / 8);
            const long long from = __shfl_sync(~0u, place, r) + c * 8;
            if (c * 8 < d) {
                dotcu::copy_later(reinterpret_cast<Chunk*>(chunk(shared.k[slice][stage], r, c)),
                                  k.data + from);
                dotcu::copy_later(reinterpret_cast<Chunk*>(chunk(shared.v[slice][stage], r, c)),
                                  v.data + from);
            }
        }
    };

    const float factor = (CAPPED ? cap : scale) * log2_e;
    float o[D / 8][4] = {}, top[2] = {-infinity, -infinity}, sum[2] = {};
    int position[2];
    for (int h = 0; h < 2; ++h) {
        position[h] = before + (first_row + 16 * tile + lane / 4 + 8 * h) / group;
    }
    long long place = place_of(0);
    for (int t = 0; t < STAGES - 1; ++t) {
        if (t < steps) copy(t, place);
        dotcu::commit_copies();
        place = place_of(t + 1);
    }
    for (int i = threadIdx.x; i < rows * columns / 8; i += 128 * TILES) {
        const int r = i / (columns / 8), c = i % (columns / 8), row = first_row + r;
        Chunk x{};
        if (row < tokens * group && c * 8 < d) {
            x = *reinterpret_cast<const Chunk*>(
                &q(batch, row / group, head * group + row % group, c * 8));
        }
        *reinterpret_cast<Chunk*>(chunk(shared.q, r, c)) = x;
    }
    if (d < D) {  // what no copy writes
        for (int i = threadIdx.x; i < slices * STAGES * 16 * (D / 8); i += 128 * TILES) {
            const int r = i / (D / 8), c = i % (D / 8);
            if (c * 8 < d) continue;
            *reinterpret_cast<Chunk*>(chunk(shared.k[0][0], r, c)) = Chunk{};
            *reinterpret_cast<Chunk*>(chunk(shared.v[0][0], r, c)) = Chunk{};
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int t = 0; t < steps; ++t) {
        dotcu::wait_for_copies<STAGES - 2>();
        if constexpr (TILES == 1) {
            __syncwarp();
        } else {
            dotcu::named_sync(1 + slice, 32 * TILES);
        }
        if (t + STAGES - 1 < steps) copy(t + STAGES - 1, place);
        dotcu::commit_copies();
        place = place_of(t + STAGES);

        const int stage = t % STAGES, key = own + t * step;
        unsigned a[4], b[4];
        float s[2][4] = {};
#pragma unroll
        for (int i = 0; i < D / 16; ++i) {
            dotcu::load_matrices(a, chunk(shared.q, 16 * tile + lane % 16, 2 * i + lane / 16));
            dotcu::load_matrices(
                b, chunk(shared.k[slice][stage], lane / 16 * 8 + lane % 8, 2 * i + lane / 8 % 2));
            dotcu::mma<T>(s[0], a, b[0], b[1]), dotcu::mma<T>(s[1], a, b[2], b[3]);
        }
        if constexpr (CAPPED) {
            for (int i = 0; i < 8; ++i) s[i / 4][i % 4] = tanh_of(s[i / 4][i % 4] * (scale / cap));
        }
        if (key + 16 > end || key + 15 > before || key < length - 1 - left) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int j = key + i / 4 * 8 + lane % 4 * 2 + i % 2, at = position[i / 2 % 2];
                if (j >= end || j > at || j < at - left) s[i / 4][i % 4] = -infinity;
            }
        }
        float high[2], shrink[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float most =
                fmaxf(fmaxf(s[0][2 * h], s[0][2 * h + 1]), fmaxf(s[1][2 * h], s[1][2 * h + 1]));
            high[h] = fmaxf(top[h], row_max(most));
            const float base = high[h] == -infinity ? 0 : high[h];
            shrink[h] = exp2_of((top[h] - base) * factor);
            top[h] = high[h], high[h] = base;
            sum[h] *= shrink[h];
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float& p = s[i / 4][i % 4];
            p = exp2_of((p - high[i / 2 % 2]) * factor);
            sum[i / 2 % 2] += p;
            a[i / 2] = i % 2 ? pack<T>(s[i / 4][i % 4 - 1], p) : 0;
        }
        if (__any_sync(~0u, shrink[0] < 1 || shrink[1] < 1)) {
#pragma unroll
            for (int i = 0; i < D / 2; ++i) o[i / 4][i % 4] *= shrink[i / 2 % 2];
        }
#pragma unroll
        for (int i = 0; i < D / 16; ++i) {
            dotcu::load_matrices<true>(b,
                                       chunk(shared.v[slice][stage], lane % 16, 2 * i + lane / 16));
            dotcu::mma<T>(o[2 * i], a, b[0], b[1]), dotcu::mma<T>(o[2 * i + 1], a, b[2], b[3]);
        }
    }

    dotcu::launch_later();
    // The results of the slices, one after the other, in the memory of the ring.
    auto* total = reinterpret_cast<float (*)[D + 8]>(&shared);
    static_assert(sizeof(float) * rows * (D + 8) <= sizeof(shared.k) + sizeof(shared.v));
    const int r = 16 * tile + lane / 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const float all = row_sum(sum[h]);
        if (lane % 4 == 0) {
            shared.top[slice][r + 8 * h] = top[h] * factor, shared.sum[slice][r + 8 * h] = all;
        }
    }
    __syncthreads();
    const auto weight = [&](int slice, int r) {
        float most = -infinity;
        for (int s = 0; s < slices; ++s) most = fmaxf(most, shared.top[s][r]);
        return most == -infinity ? 0 : exp2_of(shared.top[slice][r] - most);
    };
    const float factors[2] = {weight(slice, r), weight(slice, r + 8)};
    for (int turn = 0; turn < slices; ++turn) {
        if (slice == turn) {
#pragma unroll
            for (int i = 0; i < D / 4; ++i) {  // pairs of columns
                float2& to =
                    *reinterpret_cast<float2*>(&total[r + i % 2 * 8][i / 2 * 8 + lane % 4 * 2]);
                const float2 from = turn > 0 ? to : float2{};
                to = {from.x + o[i / 2][i % 2 * 2] * factors[i % 2],
                      from.y + o[i / 2][i % 2 * 2 + 1] * factors[i % 2]};
            }
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < rows * (d / 8); i += 128 * TILES) {
        const int r = i / (d / 8), c = i % (d / 8) * 8, row = first_row + r;
        if (row >= tokens * group) break;
        const int token = row / group, query_head = head * group + row % group;
        float all = 0, most = -infinity;
        for (int s = 0; s < slices; ++s) {
            all += shared.sum[s][r] * weight(s, r), most = fmaxf(most, shared.top[s][r]);
        }
        const float inverse = all != 0 ? 1 / all : 0;
        const float logs = all != 0 ? most * ln_2 + logf(all) : -infinity;
        const float* x = &total[r][c];
        if (parts) {
            const long long to =
                (((long long)blockIdx.y * gridDim.z + batch) * tokens + token) * heads + query_head;
            if (c == 0) part_lse[to] = logs;
            for (int e = 0; e < 8; ++e) parts[to * d + c + e] = x[e] * inverse;
        } else {
            if (c == 0) lse[((long long)batch * heads + query_head) * tokens + token] = logs;
            *reinterpret_cast<uint4*>(&out(batch, token, query_head, c)) = make_uint4(
                pack<T>(x[0] * inverse, x[1] * inverse), pack<T>(x[2] * inverse, x[3] * inverse),
                pack<T>(x[4] * inverse, x[5] * inverse), pack<T>(x[6] * inverse, x[7] * inverse));
        }
    }
}

// The results of all parts: a block for each query and head, whose warps take parts in turn. A lane
// has the columns 4 * lane on, and those 128 further right.
template <typename T>
__global__ void __launch_bounds__(128)
    attention_combine(const float* parts, const float* part_lse, dotcu::tensor<T, 4> out,
                      float* lse, int count) {
    const int tokens = out.size(1), heads = out.size(2), d = out.size(3);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = blockIdx.x, rows = gridDim.x;
    const int head = row % heads, token = row / heads % tokens, batch = row / heads / tokens;
    float most = -infinity, all = 0;
    dotcu::wait_for_earlier();
    for (int i = lane; i < count; i += 32) {
        most = fmaxf(most, part_lse[(long long)i * rows + row]);
    }
    for (int other = 16; other > 0; other /= 2) {
        most = fmaxf(most, __shfl_xor_sync(~0u, most, other));
    }
    float4 x[2] = {};
#pragma unroll 4
    for (int i = warp; i < count; i += 4) {
        const long long part = (long long)i * rows + row;
        const float logs = part_lse[part];
        const float w = logs == -infinity ? 0 : exp2_of((logs - most) * log2_e);
        all += w;
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            if (w == 0 || 4 * lane + 128 * c >= d) continue;
            const auto y = *reinterpret_cast<const float4*>(parts + part * d + 4 * lane + 128 * c);
            x[c].x += w * y.x, x[c].y += w * y.y, x[c].z += w * y.z, x[c].w += w * y.w;
        }
    }
    __shared__ float4 sums[4][64];
    __shared__ float weights[4];
    sums[warp][lane] = x[0], sums[warp][lane + 32] = x[1];
    if (lane == 0) weights[warp] = all;
    __syncthreads();
    all = weights[0] + weights[1] + weights[2] + weights[3];
    const auto* columns = reinterpret_cast<const float*>(sums);
    for (int c = threadIdx.x; c < d; c += 128) {
        const float sum = columns[c] + columns[256 + c] + columns[512 + c] + columns[768 + c];
        out(batch, token, head, c) = all != 0 ? sum / all : 0;
    }
    if (threadIdx.x == 0) {
        lse[((long long)batch * heads + head) * tokens + token] =
            all != 0 ? most + logf(all) : -infinity;
    }
}
