// Loads, stores and atomics, through pointers and through views
#include "golden.cuh"

using Relaxed = ct::memory_order_relaxed_t;
using Device = ct::thread_scope_device_t;

// By pointers

template <class T>
__tile_global__ void gather(const T* x, const int* index, T* out) {
    give(out, ct::load(x + mine(index)));
}

template <class T>
__tile_global__ void scatter(const T* x, const int* index, T* out) {
    ct::store(out + mine(index), mine(x));
}

template <class T>
__tile_global__ void masked(const T* x, T* out, int first, int count, T padding) {
    auto i = ct::iota<ct::tile<int, ct::shape<N>>>();
    auto values = ct::load_masked(x + i, i < count, padding);
    ct::store_masked(out + i, values, i >= first);
}

template <class T>
__tile_global__ void scalars(const T* x, T* out) {
    int i = ct::bid().x;
    out[i] = x[i] + x[i + 1];
}

// One address as several types, and as a number
template <class T>
__tile_global__ void pointer_casts(const T* x, u64* out) {
    auto number = reinterpret_cast<u64>(reinterpret_cast<const u64*>(x));
    auto second = reinterpret_cast<const u64*>(number + 8);
    give(out, ct::load(second + ct::iota<ct::tile<int, ct::shape<N>>>() / 4));
}

__tile__ const int squares[8] = {0, 1, 4, 9, 16, 25, 36, 49};

__tile_global__ void table(const int* x, int* out) {
    int i = ct::bid().x;
    out[i] = squares[x[i]];
}

// By views

template <class T>
__tile_global__ void copy_blocks(const T* x, T* out) {
    ct::extents<unsigned, 16, 32> all{};
    auto from = ct::partition_view{ct::tensor_span{x, all}, ct::shape<8, 16>{}};
    auto to = ct::partition_view{ct::tensor_span{out, all}, ct::shape<8, 16>{}};
    to.store(from.load(ct::bid().y, ct::bid().x), ct::bid().y, ct::bid().x);
}

// Parts of a tile that lie beyond the tensor, padded; the whole tile is written
template <class T, ct::view_padding Padding>
__tile_global__ void padded(const T* x, T* out, int m, int n) {
    auto from = ct::partition_view{ct::tensor_span{x, ct::extents{m, n}}, ct::shape<8, 16>{}};
    auto tile = from.template load_masked<Padding>(ct::bid().y, ct::bid().x);
    write(out + int(ct::bid().y * ct::num_blocks().x + ct::bid().x) * 128, tile);
}

template <class T>
__tile_global__ void store_borders(const T* x, T* out, int m, int n) {
    auto from = ct::partition_view{ct::tensor_span{x, ct::extents{m, n}}, ct::shape<8, 8>{}};
    auto to = ct::partition_view{ct::tensor_span{out, ct::extents{m, n}}, ct::shape<8, 8>{}};
    to.store_masked(from.load_masked(ct::bid().y, ct::bid().x), ct::bid().y, ct::bid().x);
}

template <class T>
__tile_global__ void columns_first(const T* x, T* out, int m, int n) {
    auto from = ct::partition_view{ct::tensor_span{x, ct::extents{m, n}, ct::layout_left{}},
                                   ct::shape<8, 16>{}};
    auto to = ct::partition_view{ct::tensor_span{out, ct::extents{m, n}}, ct::shape<8, 16>{}};
    to.store_masked(from.load_masked(ct::bid().x, 0), ct::bid().x, 0);
}

template <class T>
__tile_global__ void strided_layout(const T* x, T* out, int rows, int row_stride,
                                    int column_stride) {
    auto mapping =
        ct::layout_strided_mapping{ct::extents{rows, 12}, ct::strides{row_stride, column_stride}};
    auto from = ct::partition_view{ct::tensor_span{x, mapping}, ct::shape<8, 16>{}};
    write(out, from.load_masked(0, 0));
}

template <class T>
__tile_global__ void padded_rows(const T* x, T* out, int m, int n, int stride) {
    auto mapping = ct::layout_right_padded_mapping{ct::extents{m, n}, stride};
    auto from = ct::partition_view{ct::tensor_span{x, mapping}, ct::shape<8, 16>{}};
    write(out, from.load_masked(0, 0));
}

// Promises about addresses and sizes
template <class T>
__tile_global__ void promised(const T* x_, T* out_, int n_) {
    auto x = ct::assume_aligned(x_, 16_ic);
    auto out = ct::assume_aligned(out_, 16_ic);
    int n = ct::assume_bounded_below<0>(ct::assume_divisible<8>(n_));
    auto from = ct::partition_view{ct::tensor_span{x, ct::extents{n}}, ct::shape<128>{}};
    auto to = ct::partition_view{ct::tensor_span{out, ct::extents{n}}, ct::shape<128>{}};
    to.store_masked(from.load_masked(ct::bid().x), ct::bid().x);
}

// Tiles that overlap: a step smaller than the tile
template <class T>
__tile_global__ void overlapping(const T* x, T* out, int n) {
    auto from = ct::strided_view{ct::tensor_span{x, ct::extents{n}}, ct::shape<64>{},
                                 ct::strides<unsigned, 16>{}};
    write(out + int(ct::bid().x) * 64, from.load_masked(ct::bid().x));
}

template <class T>
__tile_global__ void gather_rows(const T* x, const int* index, T* out, int m, int n) {
    auto from =
        ct::gather_scatter_view{ct::tensor_span{x, ct::extents{m, n}}, ct::shape<8, 16>{}, 0_ic};
    auto rows = ct::element_cast<unsigned>(read<ct::shape<8>>(index));
    write(out, from.load_masked(rows, 1));
}

// Atomics: `old` takes the value before

#define ATOMIC(NAME)                                                            \
    template <class T>                                                          \
    __tile_global__ void NAME(T* cells, const int* index, const T* y, T* old) { \
        give(old, ct::NAME(cells + mine(index), mine(y), Relaxed{}, Device{})); \
    }

ATOMIC(atomic_add)
ATOMIC(atomic_sub)
ATOMIC(atomic_min)
ATOMIC(atomic_max)
ATOMIC(atomic_and)
ATOMIC(atomic_or)
ATOMIC(atomic_xor)
ATOMIC(atomic_xchg)

template <class T>
__tile_global__ void atomic_cas(T* cells, const int* index, const T* expected, const T* y, T* old) {
    give(old, ct::atomic_compare_exchange(cells + mine(index), mine(expected), mine(y), Relaxed{},
                                          Device{}));
}

template <class T>
__tile_global__ void atomic_add_masked(T* cells, const T* y, int count, T* old) {
    auto i = ct::iota<ct::tile<int, ct::shape<N>>>();
    auto before = ct::atomic_add_masked(cells + i, mine(y), i < count, Relaxed{}, Device{});
    ct::store_masked(old + i, before, i < count);
}

// Many tile blocks and many elements of each meet in few cells; nobody reads what was there before
template <class T>
__tile_global__ void atomic_contended(T* cells, const T* y) {
    auto i = ct::iota<ct::tile<int, ct::shape<N>>>();
    ct::atomic_add(cells + i % 4, mine(y), Relaxed{}, Device{});
    ct::atomic_max(cells + 4 + i % 2, mine(y), Relaxed{}, Device{});
    ct::atomic_xor(cells + 6 + i % 2, mine(y), Relaxed{}, Device{});
}

template <class T>
__tile_global__ void view_atomics(T* sums, T* largest, const T* y, int n) {
    auto into = ct::partition_view{ct::tensor_span{sums, ct::extents{n}}, ct::shape<N>{}};
    auto most = ct::partition_view{ct::tensor_span{largest, ct::extents{n}}, ct::shape<N>{}};
    into.atomic_add_masked(mine(y), Relaxed{}, Device{}, 0);
    most.atomic_max_masked(mine(y), Relaxed{}, Device{}, 0);
}

template <class T>
__tile_global__ void atomic_load_store(const T* x, T* out) {
    auto i = ct::iota<ct::tile<int, ct::shape<N>>>();
    auto values = ct::atomic_load(x + i, Relaxed{}, Device{});
    ct::atomic_store(out + i, values + values, Relaxed{}, Device{});
}
