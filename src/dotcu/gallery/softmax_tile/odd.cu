// softmax_tile of rows that begin anywhere: their length is no multiple of 16 bytes.
//
//     softmax_odd             y[r][j] = exp(x[r][j]) / sum over i of exp(x[r][i])
//     softmax_backward_odd    out[r][j] = y[r][j] * (grad[r][j] - sum over i of grad[r][i] *
//                             y[r][i])
//
// Idea: a tile that may begin anywhere is loaded element by element. But such a row holds groups of
// 16 bytes, and these are a tile that begins at a multiple of 16 bytes. What is before and behind
// them, fewer than 16 bytes each, is a second tile, small and with a mask. A block takes a row.
//
// Cost: 2 elements moved per element (3 by softmax_backward_odd). Bound by memory.
#include "rows.cuh"

// Where the elements of an odd row lie that are in none of its groups: `head` before the first, and
// what is behind the `whole` elements of all groups.
template <int LANES>
__tile__ auto edges(int head, int whole) {
    const auto lane =
        ct::reshape<ct::shape<1, 2 * LANES>>(ct::iota<ct::tile<int, ct::shape<2 * LANES>>>());
    return ct::select(lane < head, lane, lane + whole);
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
    const auto none = ct::full<ct::tile<float, ct::shape<1, 32 / sizeof(T)>>>(beyond);
    return ct::select(at < cols, loaded, none);
}

template <typename T, int COLS, int WARPS, int BLOCKS>
[[cutile::hint(0, num_worker_warps_per_cta = WARPS, occupancy = BLOCKS)]]
__tile_global__ void softmax_odd(const T* __restrict__ x, T* __restrict__ y, int rows, int cols) {
    constexpr int LANES = 16 / sizeof(T);
    const long long begin = static_cast<long long>(ct::bid().x) * cols;
    const int head = int(-begin & (LANES - 1)), whole = ct::max(cols - head, 0) & -LANES;
    const auto at = edges<LANES>(head, whole);
    const auto row = logits(tiles<1, COLS, LANES>(x + begin + head, 1, whole), 0, 0);
    const auto edge = load_edges(x + begin, at, cols, -__builtin_bit_cast(float, 0x7f800000));
    const auto high = ct::max(ct::reduce_max(row, 1_ic), ct::reduce_max(edge, 1_ic));
    const auto e = exp_of_difference(row, high);
    const auto f = exp_of_difference(edge, high);
    const auto scale = 1.f / (ct::sum(e, 1_ic) + ct::sum(f, 1_ic));
    const auto Y = tiles<1, COLS, LANES>(y + begin + head, 1, whole);
    [[cutile::hint(0, allow_tma = false)]] Y.store_masked(ct::element_cast<T>(e * scale), 0, 0);
    ct::store_masked(y + begin + at, ct::element_cast<T>(f * scale), at < cols);
}

template <typename T, int COLS, int WARPS, int BLOCKS>
[[cutile::hint(0, num_worker_warps_per_cta = WARPS, occupancy = BLOCKS)]]
__tile_global__ void softmax_backward_odd(const T* __restrict__ grad, const T* __restrict__ y,
                                          T* __restrict__ out, int rows, int cols) {
    constexpr int LANES = 16 / sizeof(T);
    const long long begin = static_cast<long long>(ct::bid().x) * cols;
    const int head = int(-begin & (LANES - 1)), whole = ct::max(cols - head, 0) & -LANES;
    const auto at = edges<LANES>(head, whole);
    const auto groups = [=](auto* p) { return tiles<1, COLS, LANES>(p + begin + head, 1, whole); };
    const auto g = load_groups(groups(grad)), p = load_groups(groups(y));
    const auto h = load_edges(grad + begin, at, cols, 0.f);
    const auto q = load_edges(y + begin, at, cols, 0.f);
    const auto mean = ct::sum(g * p, 1_ic) + ct::sum(h * q, 1_ic);
    [[cutile::hint(0, allow_tma = false)]] groups(out).store_masked(
        ct::element_cast<T>(p * (g - mean)), 0, 0);
    ct::store_masked(out + begin + at, ct::element_cast<T>(q * (h - mean)), at < cols);
}
