// attention_tile: softmax(q @ k^T * scale) @ v for every head, in CUDA Tile C++.
//
//     out[h][i] = sum over j of p[i][j] * v[g][j],   p[i][j] = exp(scale * q[h][i] . k[g][j] -
//     lse[h][i]) lse[h][i] = log(sum over j of exp(scale * q[h][i] . k[g][j])),   g = h / group q,
//     out: (heads, QUERIES, D), k, v: (heads / group, KEYS, D); causal: j <= i only
//
// A block takes BM queries of a head and goes along its keys, BN at a time. The scores of a step
// live in registers alone: the sum over p and the product with v are kept for the highest score so
// far, and shrink when a higher one comes (FlashAttention: Dao et al. 2022, arXiv:2205.14135).
// exp is taken to base 2. A score costs a difference, a product and one exp2; a fused multiply-add
// of s * factor - top * factor is one less, and off by the rounding of large scores.
//
// Cost: 4 heads QUERIES KEYS D FLOPs, half of them where causal. Bound by the tensor cores; then
// by exp2, of which there are D / 4 times fewer.
#include "rows.cuh"

template <typename T, int D, int BM, int BN, int WARPS, int BLOCKS, bool CAUSAL>
[[cutile::hint(0, num_worker_warps_per_cta = WARPS, occupancy = BLOCKS)]]
__tile_global__ void attention(const T* __restrict__ q, const T* __restrict__ k,
                               const T* __restrict__ v, T* __restrict__ out,
                               float* __restrict__ lse, int heads, int group, int queries, int keys,
                               float scale) {
    const auto K = rows_of<BN, D>(k, heads / group, keys);
    const auto V = rows_of<BN, D>(v, heads / group, keys);
    const int blocks = (queries + BM - 1) / BM, b = ct::bid().x;
    const int h = CAUSAL ? b % heads : b / blocks, g = h / group;
    const int i = CAUSAL ? blocks - 1 - b / heads : b % blocks;  // those with the most keys first
    const auto Q = load<BM, D>(rows_of<BM, D>(q, heads, queries), h, i);

    auto sum = ct::zeros<ct::tile<float, ct::shape<BM, D>>>();
    auto total = ct::zeros<ct::tile<float, ct::shape<BM, 1>>>();
    auto high = ct::full<ct::tile<float, ct::shape<BM, 1>>>(NONE);
    const int last = CAUSAL ? ct::min(keys, (i + 1) * BM) : keys;
    const int whole =
        CAUSAL ? ct::min(keys, i * BM + 1) / BN : keys / BN;  // steps that need no mask
    const float factor = scale * LOG2_E;
    for (auto j : ct::irange(0, (last + BN - 1) / BN)) {
        auto s = ct::mma(Q, ct::transpose(load<BN, D>(K, g, j)),
                         ct::zeros<ct::tile<float, ct::shape<BM, BN>>>());
        if (j >= whole) {
            const auto none = ct::full<decltype(s)>(NONE);
            const auto key = j * BN + count<1, BN>();
            if constexpr (CAUSAL) s = ct::select(key <= i * BM + count<BM, 1>(), s, none);
            s = ct::select(key < keys, s, none);
        }
        const auto top = ct::max(high, ct::reduce_max(s, 1_ic));
        const auto p = exp2((s - top) * factor);
        const auto shrink = exp2((high - top) * factor);
        total = total * shrink + ct::sum(p, 1_ic);
        sum = ct::mma(ct::element_cast<T>(p), load<BN, D>(V, g, j), sum * shrink);
        high = top;
    }
    store<BM, D>(rows_of<BM, D>(out, heads, queries), ct::element_cast<T>(sum * (1.f / total)), h,
                 i);
    const ct::extents sizes{heads, queries};
    const auto LSE = ct::partition_view{ct::tensor_span{lse, sizes}, ct::shape<1, BM>{}};
    LSE.store_masked(ct::reshape<ct::shape<1, BM>>(scale * high + ct::log(total)), h, i);
}
