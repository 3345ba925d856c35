// softmax_tile: y[r][j] = exp(x[r][j]) / sum over i of exp(x[r][i]), in CUDA Tile C++.
//
//     softmax              a block takes ROWS rows of at most COLS elements, a power of two
//     softmax_long         a block takes a row of any length, COLS elements at a time, twice
//     softmax_backward     out[r][j] = y[r][j] * (grad[r][j] - sum over i of grad[r][i] * y[r][i])
//                          and softmax_backward_long, likewise
//
// Idea: a tile is a row. Its maximum and its sum are one call each; threads, shuffles and barriers
// are the compiler's. Elements beyond a row are read as -inf, so that they add nothing.
// Cost: 2 elements moved per element (3 by softmax_long and softmax_backward). Bound by memory.
#include "rows.cuh"

template <typename T, int ROWS, int COLS, int ALIGN, int WARPS, int BLOCKS>
[[cutile::hint(0, num_worker_warps_per_cta = WARPS, occupancy = BLOCKS)]]
__tile_global__ void softmax(const T* __restrict__ x, T* __restrict__ y, int rows, int cols) {
    const int r = ct::bid().x;
    const auto row = logits(tiles<ROWS, COLS, ALIGN>(x, rows, cols), r, 0);
    const auto e = exp_of_difference(row, ct::reduce_max(row, 1_ic));
    const auto result = e * (1.f / ct::sum(e, 1_ic));
    const auto Y = tiles<ROWS, COLS, ALIGN>(y, rows, cols);
    [[cutile::hint(0, allow_tma = false)]] Y.store_masked(ct::element_cast<T>(result), r, 0);
}

template <typename T, int COLS, int ALIGN, int WARPS>
[[cutile::hint(0, num_worker_warps_per_cta = WARPS)]]
__tile_global__ void softmax_long(const T* __restrict__ x, T* __restrict__ y, int rows, int cols) {
    const auto X = tiles<1, COLS, ALIGN>(x, rows, cols);
    const auto Y = tiles<1, COLS, ALIGN>(y, rows, cols);
    const int r = ct::bid().x, steps = (cols + COLS - 1) / COLS;
    auto high = ct::full<ct::tile<float, ct::shape<1, 1>>>(-3.40282347e38f);
    auto sum = ct::zeros<ct::tile<float, ct::shape<1, 1>>>();
    for (auto s : ct::irange(0, steps)) {
        const auto part = logits(X, r, s);
        const auto top = ct::max(high, ct::reduce_max(part, 1_ic));
        sum = sum * exp_of_difference(high, top) + ct::sum(exp_of_difference(part, top), 1_ic);
        high = top;
    }
    for (auto s : ct::irange(0, steps)) {
        const auto result = exp_of_difference(logits(X, r, s), high) * (1.f / sum);
        Y.store_masked(ct::element_cast<T>(result), r, s);
    }
}

template <typename T, int ROWS, int COLS, int ALIGN, int WARPS, int BLOCKS>
[[cutile::hint(0, num_worker_warps_per_cta = WARPS, occupancy = BLOCKS)]]
__tile_global__ void softmax_backward(const T* __restrict__ grad, const T* __restrict__ y,
                                      T* __restrict__ out, int rows, int cols) {
    const int r = ct::bid().x;
    const auto g = load(tiles<ROWS, COLS, ALIGN>(grad, rows, cols), r, 0);
    const auto p = load(tiles<ROWS, COLS, ALIGN>(y, rows, cols), r, 0);
    const auto result = p * (g - ct::sum(g * p, 1_ic));
    tiles<ROWS, COLS, ALIGN>(out, rows, cols).store_masked(ct::element_cast<T>(result), r, 0);
}

template <typename T, int COLS, int ALIGN, int WARPS>
[[cutile::hint(0, num_worker_warps_per_cta = WARPS)]]
__tile_global__ void softmax_backward_long(const T* __restrict__ grad, const T* __restrict__ y,
                                           T* __restrict__ out, int rows, int cols) {
    const auto G = tiles<1, COLS, ALIGN>(grad, rows, cols);
    const auto Y = tiles<1, COLS, ALIGN>(y, rows, cols);
    const int r = ct::bid().x, steps = (cols + COLS - 1) / COLS;
    auto sum = ct::zeros<ct::tile<float, ct::shape<1, 1>>>();
    for (auto s : ct::irange(0, steps)) sum = sum + ct::sum(load(G, r, s) * load(Y, r, s), 1_ic);
    for (auto s : ct::irange(0, steps)) {
        const auto result = load(Y, r, s) * (load(G, r, s) - sum);
        tiles<1, COLS, ALIGN>(out, rows, cols).store_masked(ct::element_cast<T>(result), r, s);
    }
}
