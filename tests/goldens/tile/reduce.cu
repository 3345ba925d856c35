// Reductions and scans along a dimension of a tile of 4 x 8 x 4
#include "golden.cuh"

using Shape = ct::shape<4, 8, 4>;

#define REDUCE(NAME, ...)                           \
    template <class T, int D, class R = T>          \
    __tile_global__ void NAME(const T* x, R* out) { \
        auto a = read<Shape>(x);                    \
        ct::integral_constant<D> dim{};             \
        write(out, __VA_ARGS__);                    \
    }

REDUCE(sum, ct::sum(a, dim))
REDUCE(sum_toward_zero, ct::sum(a, dim, ct::round_toward_zero_t{}))
REDUCE(product, ct::prod(a, dim))
REDUCE(largest, ct::reduce_max(a, dim))
REDUCE(smallest, ct::reduce_min(a, dim))
REDUCE(largest_nan, ct::reduce_max(a, dim, ct::propagate_nan_t{}))
REDUCE(smallest_nan, ct::reduce_min(a, dim, ct::propagate_nan_t{}))
REDUCE(where_largest, ct::element_cast<int>(ct::max_element(a, dim)))
REDUCE(where_smallest, ct::element_cast<int>(ct::min_element(a, dim)))
REDUCE(all, ct::all_of(a > a * 0 + 1, dim))
REDUCE(any, ct::any_of(a > a * 0 + 1, dim))
REDUCE(reduce_and, ct::reduce_bitand(a, dim))
REDUCE(reduce_or, ct::reduce_bitor(a, dim))
REDUCE(reduce_xor, ct::reduce_bitxor(a, dim))
REDUCE(scan_sum, ct::partial_sum(a, dim))
REDUCE(scan_sum_backward, ct::partial_sum(a, dim, ct::scan_backward_t{}))
REDUCE(scan_product, ct::partial_prod(a, dim))
REDUCE(scan_product_backward, ct::partial_prod(a, dim, ct::scan_backward_t{}))
