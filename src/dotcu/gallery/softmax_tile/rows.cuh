// What the kernels of softmax_tile share: rows as tiles, with -inf beyond them, and exp.
#pragma once
#include <cuda_tile.h>

namespace ct = cuda::tiles;
using namespace ct::literals;

// Rows as tiles of ROWS x COLS. The length of a row is a multiple of ALIGN elements.
template <int ROWS, int COLS, int ALIGN, typename T>
__tile__ auto tiles(T* p, int rows, int cols) {
    const ct::extents sizes{ct::assume_bounded_below<0>(rows),
                            ct::assume_bounded_below<0>(ct::assume_divisible<ALIGN>(cols))};
    T* start = ct::assume_aligned<ALIGN * sizeof(T)>(p);
    return ct::partition_view{ct::tensor_span{start, sizes}, ct::shape<ROWS, COLS>{}};
}

// A tile in float, with -inf beyond the row. Rows that are read once gain nothing from TMA.
template <typename View>
__tile__ auto logits(View x, int row, int step) {
    typename View::view_tile_type tile;
    [[cutile::hint(0, allow_tma = false)]] tile =
        x.load_masked(ct::view_padding_negative_inf_t{}, row, step);
    return ct::element_cast<float>(tile);
}

__tile__ auto load(auto x, int row, int step) {
    return ct::element_cast<float>(x.load_masked(row, step));
}

template <typename Tile>
__tile__ Tile exp_of_difference(Tile x, auto high) {
    return ct::exp2(1.44269504f * (x - high));
}
