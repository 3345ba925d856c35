// The functions that epilogues of matmul_tile apply to a tile of float32.
#pragma once
#include <cuda_tile.h>

namespace ct = cuda::tiles;

template <typename Tile>
__tile__ Tile silu(Tile x) {
    return ct::div(x, 1.f + ct::exp2(-1.44269504f * x), ct::round_approximate_t{});
}

// x times the normal distribution up to x; `beyond` is that beyond |x|, within 1e-7 (Abramowitz and
// Stegun 7.1.26).
template <typename Tile>
__tile__ Tile gelu(Tile x) {
    const Tile t = ct::div(1.f, 1.f + 0.231641888f * ct::abs(x), ct::round_approximate_t{});
    const Tile a = 0.710706871f + t * (-0.726576014f + t * 0.530702715f);
    const Tile b = t * (0.127414796f + t * (-0.142248368f + t * a));
    const Tile beyond = b * ct::exp2(-0.721347520f * x * x);
    return x * ct::select(x < 0.f, beyond, 1.f - beyond);
}
