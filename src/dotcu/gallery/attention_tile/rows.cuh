// What the kernels of attention_tile share: the rows of heads as tiles, positions, exp2.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_tile.h>

namespace ct = cuda::tiles;
using namespace ct::literals;

constexpr float NONE = -1e38f;  // below every score
constexpr float LOG2_E = 1.44269504f;

// The rows of all heads as tiles of ROWS x D.
template <int ROWS, int D, typename T>
__tile__ auto rows_of(T* p, int heads, int rows) {
    const ct::extents sizes{ct::assume_bounded_below<0>(heads), ct::assume_bounded_below<0>(rows),
                            ct::integral_constant<D>{}};
    return ct::partition_view{ct::tensor_span{ct::assume_aligned<16>(p), sizes},
                              ct::shape<1, ROWS, D>{}};
}

template <int ROWS, int D, typename View>
__tile__ auto load(View view, int head, int at) {
    return ct::reshape<ct::shape<ROWS, D>>(view.load_masked(head, at, 0));
}

template <int ROWS, int D, typename View, typename Tile>
__tile__ void store(View view, Tile rows, int head, int at) {
    view.store_masked(ct::reshape<ct::shape<1, ROWS, D>>(rows), head, at, 0);
}

// 0, 1, 2, ... down a column or along a row.
template <int ROWS, int COLS>
__tile__ auto count() {
    return ct::reshape<ct::shape<ROWS, COLS>>(ct::iota<ct::tile<int, ct::shape<ROWS * COLS>>>());
}

template <typename Tile>
__tile__ Tile exp2(Tile x) {
    return ct::exp2(x, ct::round_subnormals_to_zero_t{});
}
