// Comparisons, logic and selection
#include "golden.cuh"

BINARY(less, a < b)
BINARY(less_equal, a <= b)
BINARY(greater, a > b)
BINARY(greater_equal, a >= b)
BINARY(equal, a == b)
BINARY(not_equal, a != b)
BINARY(both, (a < b) && (a != b))
BINARY(either, (a < b) || (a == b))
UNARY(negated, !(a == a))
UNARY(is_nan, ct::isnan(a))
UNARY(is_inf, ct::isinf(a))
BINARY(select, ct::select(a < b, a, b))

// One condition for each row of a tile
template <class T>
__tile_global__ void select_rows(const T* x, const T* y, T* out) {
    using Shape = ct::shape<8, 16>;
    auto rows = ct::iota<ct::tile<int, ct::shape<8>>>();
    auto odd = ct::reshape((rows & 1) == 1, ct::shape<8, 1>{});
    write(out, ct::select(odd, read<Shape>(x), read<Shape>(y)));
}

template <class T>
__tile_global__ void compare_pointers(const T* x, const int* y, bool* out) {
    give(out, x + mine(y) < x + 64);
}

template <class T>
__tile_global__ void pointer_difference(const T* x, const int* y, i64* out) {
    auto apart = (x + mine(y)) - (x + 64);
    give(out, ct::element_cast<i64>(apart));
}
