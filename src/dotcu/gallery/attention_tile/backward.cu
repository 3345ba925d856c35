// attention_tile_backward: the gradients of attention_tile by q, k and v, in CUDA Tile C++.
//
//     p = exp(scale * q @ k^T - lse),   ds = p * (grad @ v^T - delta),   delta = sum of grad * out
//     grad_v = p^T @ grad,   grad_k = scale * ds^T @ q,   grad_q = scale * ds @ k
//
//     attention_delta            delta of each query
//     attention_keys_backward    a block takes BN keys of a head of k and v, and goes along all
//     queries attention_queries_backward a block takes BM queries, and goes along their keys
//
// p is computed again, from lse, in both: so nothing is added up in memory, and results are the
// same in every run (FlashAttention-2: Dao 2023, arXiv:2307.08691, which adds grad_q atomically).
// Queries and keys beyond the end are zeros: they add nothing, so only causal scores are masked.
//
// Cost: 14 heads QUERIES KEYS D FLOPs, half of them where causal. Bound by the tensor cores.
#include "rows.cuh"

// The numbers of each query as tiles of N.
template <int N, typename T>
__tile__ auto numbers(T* p, int heads, int queries) {
    return ct::partition_view{ct::tensor_span{p, ct::extents{heads, queries}}, ct::shape<1, N>{}};
}

template <typename T, int D, int BM>
__tile_global__ void attention_delta(const T* __restrict__ out, const T* __restrict__ grad,
                                     float* __restrict__ delta, int heads, int queries) {
    const int blocks = (queries + BM - 1) / BM, i = ct::bid().x % blocks, h = ct::bid().x / blocks;
    const auto o = ct::element_cast<float>(load<BM, D>(rows_of<BM, D>(out, heads, queries), h, i));
    const auto g = ct::element_cast<float>(load<BM, D>(rows_of<BM, D>(grad, heads, queries), h, i));
    const auto sum = ct::reshape<ct::shape<1, BM>>(ct::sum(o * g, 1_ic));
    numbers<BM>(delta, heads, queries).store_masked(sum, h, i);
}

template <typename T, int D, int BM, int BN, int WARPS, bool CAUSAL>
[[cutile::hint(0, num_worker_warps_per_cta = WARPS)]]
__tile_global__ void attention_keys_backward(const T* __restrict__ q, const T* __restrict__ k,
                                             const T* __restrict__ v, const T* __restrict__ grad,
                                             const float* __restrict__ lse,
                                             const float* __restrict__ delta,
                                             T* __restrict__ grad_k, T* __restrict__ grad_v,
                                             int heads, int group, int queries, int keys,
                                             float scale) {
    const auto Q = rows_of<BM, D>(q, heads, queries);
    const auto GRAD = rows_of<BM, D>(grad, heads, queries);
    const auto LSE = numbers<BM>(lse, heads, queries);
    const auto DELTA = numbers<BM>(delta, heads, queries);
    const int blocks = (keys + BN - 1) / BN, j = ct::bid().x % blocks, g = ct::bid().x / blocks;
    const auto K = load<BN, D>(rows_of<BN, D>(k, heads / group, keys), g, j);
    const auto V = load<BN, D>(rows_of<BN, D>(v, heads / group, keys), g, j);
    const auto zero = ct::zeros<ct::tile<float, ct::shape<BN, BM>>>();
    auto by_k = ct::zeros<ct::tile<float, ct::shape<BN, D>>>(), by_v = by_k;
    const int first = CAUSAL ? j * BN / BM : 0,
              count_of = ct::max((queries + BM - 1) / BM - first, 0);
    for (auto t : ct::irange(0, group * count_of)) {
        const int h = g * group + t / count_of, i = first + t % count_of;
        const auto x = load<BM, D>(Q, h, i);
        const auto dy = load<BM, D>(GRAD, h, i);
        const auto s = ct::mma(K, ct::transpose(x), zero);
        auto p = exp2(s * (scale * LOG2_E) - LOG2_E * LSE.load_masked(h, i));
        if constexpr (CAUSAL)
            p = ct::select(j * BN + count<BN, 1>() <= i * BM + count<1, BM>(), p, zero);
        by_v = ct::mma(ct::element_cast<T>(p), dy, by_v);
        const auto ds = p * (ct::mma(V, ct::transpose(dy), zero) - DELTA.load_masked(h, i));
        by_k = ct::mma(ct::element_cast<T>(ds), x, by_k);
    }
    store<BN, D>(rows_of<BN, D>(grad_k, heads / group, keys), ct::element_cast<T>(by_k * scale), g,
                 j);
    store<BN, D>(rows_of<BN, D>(grad_v, heads / group, keys), ct::element_cast<T>(by_v), g, j);
}

template <typename T, int D, int BM, int BN, int WARPS, bool CAUSAL>
[[cutile::hint(0, num_worker_warps_per_cta = WARPS)]]
__tile_global__ void attention_queries_backward(const T* __restrict__ q, const T* __restrict__ k,
                                                const T* __restrict__ v, const T* __restrict__ grad,
                                                const float* __restrict__ lse,
                                                const float* __restrict__ delta,
                                                T* __restrict__ grad_q, int heads, int group,
                                                int queries, int keys, float scale) {
    const auto K = rows_of<BN, D>(k, heads / group, keys);
    const auto V = rows_of<BN, D>(v, heads / group, keys);
    const int blocks = (queries + BM - 1) / BM, h = ct::bid().x / blocks, g = h / group;
    const int i = blocks - 1 - ct::bid().x % blocks;  // those with the most keys first
    const auto x = load<BM, D>(rows_of<BM, D>(q, heads, queries), h, i);
    const auto dy = load<BM, D>(rows_of<BM, D>(grad, heads, queries), h, i);
    const auto high =
        LOG2_E * ct::reshape<ct::shape<BM, 1>>(numbers<BM>(lse, heads, queries).load_masked(h, i));
    const auto mean =
        ct::reshape<ct::shape<BM, 1>>(numbers<BM>(delta, heads, queries).load_masked(h, i));
    const auto zero = ct::zeros<ct::tile<float, ct::shape<BM, BN>>>();
    auto by_q = ct::zeros<ct::tile<float, ct::shape<BM, D>>>();
    const int last = CAUSAL ? ct::min(keys, (i + 1) * BM) : keys;
    for (auto j : ct::irange(0, (last + BN - 1) / BN)) {
        const auto w = load<BN, D>(K, g, j);
        auto p = exp2(ct::mma(x, ct::transpose(w), zero) * (scale * LOG2_E) - high);
        if constexpr (CAUSAL)
            p = ct::select(j * BN + count<1, BN>() <= i * BM + count<BM, 1>(), p, zero);
        const auto ds = p * (ct::mma(dy, ct::transpose(load<BN, D>(V, g, j)), zero) - mean);
        by_q = ct::mma(ct::element_cast<T>(ds), w, by_q);
    }
    store<BM, D>(rows_of<BM, D>(grad_q, heads, queries), ct::element_cast<T>(by_q * scale), h, i);
}
