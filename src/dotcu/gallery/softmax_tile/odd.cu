// softmax_tile of rows that begin anywhere: their length is no multiple of 16 bytes.
//
//     softmax_odd             y[r][j] = exp(x[r][j]) / sum over i of exp(x[r][i])
//     softmax_backward_odd    out[r][j] = y[r][j] * (grad[r][j] - sum over i of grad[r][i] *
//                             y[r][i])
//
// Idea: a tile that may begin anywhere is loaded element by element. But such a row holds groups of
// 16 bytes, each at a multiple of 16 bytes: a tile of groups x elements, each group loaded at once.
// What is before and behind them, fewer than 16 bytes each, is a second tile, small and with a
// mask. A block takes a row.
//
// Cost: 2 elements moved per element (3 by softmax_backward_odd). Bound by memory.
#include "rows.cuh"

template <typename T>
constexpr int LANES = 16 / sizeof(T);  // the elements of a group

// A row's groups, `count` from the first one on, as a tile of COLS elements.
template <int COLS, typename T>
__tile__ auto groups(T* first, int count) {
    const ct::extents sizes{ct::assume_bounded_below<0>(count), ct::integral_constant<LANES<T>>{}};
    return ct::partition_view{ct::tensor_span{ct::assume_aligned<16>(first), sizes},
                              ct::shape<COLS / LANES<T>, LANES<T>>{}};
}

// Where the elements lie that are in no group: `head` before the first, and what is behind `count`.
template <int LANES>
__tile__ auto edges(int head, int count) {
    const auto lane =
        ct::reshape<ct::shape<1, 2 * LANES>>(ct::iota<ct::tile<int, ct::shape<2 * LANES>>>());
    return ct::select(lane < head, lane, lane + count * LANES);
}

template <typename View>
__tile__ auto load_groups(View row) {
    typename View::view_tile_type tile;
    [[cutile::hint(0, allow_tma = false)]] tile = row.load_masked(0, 0);
    return ct::element_cast<float>(tile);
}

template <typename T, typename At>
__tile__ auto load_edges(const T* row, At at, int cols, float beyond) {
    const auto loaded = ct::element_cast<float>(ct::load_masked(row + at, at < cols));
    const auto none = ct::full<ct::tile<float, ct::shape<1, 2 * LANES<T>>>>(beyond);
    return ct::select(at < cols, loaded, none);
}

__tile__ auto sum_of(auto tile) { return ct::sum(ct::sum(tile, 1_ic), 0_ic); }

__tile__ auto max_of(auto tile) { return ct::reduce_max(ct::reduce_max(tile, 1_ic), 0_ic); }

template <typename T, int COLS, int WARPS, int BLOCKS>
[[cutile::hint(0, num_worker_warps_per_cta = WARPS, occupancy = BLOCKS)]]
__tile_global__ void softmax_odd(const T* __restrict__ x, T* __restrict__ y, int rows, int cols) {
    const long long begin = static_cast<long long>(ct::bid().x) * cols;
    const int head = int(-begin & (LANES<T> - 1)), count = ct::max(cols - head, 0) / LANES<T>;
    const auto at = edges<LANES<T>>(head, count);
    const auto row = logits(groups<COLS>(x + begin + head, count), 0, 0);
    const auto edge = load_edges(x + begin, at, cols, -__builtin_bit_cast(float, 0x7f800000));
    const auto high = ct::max(max_of(row), max_of(edge));
    const auto e = exp_of_difference(row, high);
    const auto f = exp_of_difference(edge, high);
    const auto scale = 1.f / (sum_of(e) + sum_of(f));
    const auto Y = groups<COLS>(y + begin + head, count);
    [[cutile::hint(0, allow_tma = false)]] Y.store_masked(ct::element_cast<T>(e * scale), 0, 0);
    ct::store_masked(y + begin + at, ct::element_cast<T>(f * scale), at < cols);
}

template <typename T, int COLS, int WARPS, int BLOCKS>
[[cutile::hint(0, num_worker_warps_per_cta = WARPS, occupancy = BLOCKS)]]
__tile_global__ void softmax_backward_odd(const T* __restrict__ grad, const T* __restrict__ y,
                                          T* __restrict__ out, int rows, int cols) {
    const long long begin = static_cast<long long>(ct::bid().x) * cols;
    const int head = int(-begin & (LANES<T> - 1)), count = ct::max(cols - head, 0) / LANES<T>;
    const auto at = edges<LANES<T>>(head, count);
    const auto g = load_groups(groups<COLS>(grad + begin + head, count));
    const auto p = load_groups(groups<COLS>(y + begin + head, count));
    const auto h = load_edges(grad + begin, at, cols, 0.f);
    const auto q = load_edges(y + begin, at, cols, 0.f);
    const auto mean = sum_of(g * p) + sum_of(h * q);
    const auto result = ct::element_cast<T>(p * (g - mean));
    const auto OUT = groups<COLS>(out + begin + head, count);
    [[cutile::hint(0, allow_tma = false)]] OUT.store_masked(result, 0, 0);
    ct::store_masked(out + begin + at, ct::element_cast<T>(q * (h - mean)), at < cols);
}
