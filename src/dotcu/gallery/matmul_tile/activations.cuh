// The functions that epilogues of matmul_tile apply to a tile of float32.
#pragma once
#include <cuda_tile.h>

namespace ct = cuda::tiles;

template <typename Tile>
__tile__ Tile silu(Tile x) {
    return ct::div(x, 1.f + ct::exp2(-1.44269504f * x), ct::round_approximate_t{});
}

// x times the normal distribution up to x. The part of it beyond |x| is 2^p(|x|), within 5e-5 of it
// up to 6: a minimax fit of log2(erfc(x / sqrt(2)) / 2). From 10 on it is below every value of x.
template <typename Tile>
__tile__ Tile gelu(Tile x) {
    const Tile y = ct::min(ct::abs(x), 10.f);
    const Tile p =
        -0.461271907f +
        y * (-0.0511853444f + y * (0.00719556695f + y * (-0.000611100114f + y * 2.29900598e-5f)));
    const Tile q = -1.00006478f + y * (-1.15017427f + y * p);
    const Tile beyond = ct::exp2(q, ct::round_subnormals_to_zero_t{});
    return ct::fma(-y, beyond, ct::max(x, 0.f, ct::propagate_nan_t{}));
}
