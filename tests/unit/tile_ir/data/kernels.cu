// Kernels of the tests of Tile IR: what is right, and for each finding of the simulator one that has it.
#include "cuda_tile.h"
#include <cuda_bf16.h>
namespace ct = cuda::tiles;
using namespace ct::literals;
using bf16 = __nv_bfloat16;

template <int N>
using line = ct::shape<N>;

// A view of a row of elements, in tiles of 128
template <class T>
__tile__ auto row(T* x, int n) {
    return ct::partition_view{ct::tensor_span{x, ct::extents{n}}, line<128>{}};
}

extern "C" __tile_global__ void add(const float* a, const float* b, float* c, int n) {
    auto i = ct::bid().x;
    row(c, n).store_masked(row(a, n).load_masked(i) + row(b, n).load_masked(i), i);
}

// The last tile leaves the tensor, and nothing masks it
extern "C" __tile_global__ void add_unmasked(const float* a, const float* b, float* c, int n) {
    auto i = ct::bid().x;
    row(c, n).store(row(a, n).load(i) + row(b, n).load(i), i);
}

// The extent is one too many
extern "C" __tile_global__ void add_too_far(const float* a, float* c, int n) {
    auto i = ct::bid().x;
    row(c, n).store_masked(row(a, n + 1).load_masked(i), i);
}

extern "C" __tile_global__ void scale(const float* x, float* y, int n, float by) {
    auto i = int(ct::bid().x) * 128 + ct::iota<ct::tile<int, line<128>>>();
    auto inside = i < n;
    ct::store_masked(y + i, ct::load_masked(x + i, inside) * by, inside);
}

extern "C" __tile_global__ void scale_unmasked(const float* x, float* y, float by) {
    auto i = int(ct::bid().x) * 128 + ct::iota<ct::tile<int, line<128>>>();
    ct::store(y + i, ct::load(x + i) * by);
}

extern "C" __tile_global__ void promised(const float* x_, float* y, int n_) {
    int n = ct::assume_bounded<0, 100000>(ct::assume_divisible<8>(n_));
    auto x = ct::assume_aligned(x_, 16_ic);
    auto i = ct::bid().x;
    row(y, n).store_masked(row(x, n).load_masked(i), i);
}

// All blocks store to the first tile
extern "C" __tile_global__ void same_tile(float* y, int n) {
    row(y, n).store(ct::full<ct::tile<float, line<128>>>(float(ct::bid().x)), 0);
}

// Each block reads the tile that the one before it writes
extern "C" __tile_global__ void shifted(float* y, int n) {
    auto i = ct::bid().x;
    auto before = row(y, n).load(i == 0 ? 0 : i - 1);
    row(y, n).store(before + 1.0f, i);
}

extern "C" __tile_global__ void swap(float* a, float* b) {
    auto first = row(a, 128).load(0), second = row(b, 128).load(0);
    row(a, 128).store(second, 0);
    row(b, 128).store(first, 0);
}

extern "C" __tile_global__ void scatter(const float* x, const int* to, float* y) {
    auto i = ct::iota<ct::tile<int, line<128>>>();
    ct::store(y + ct::load(to + i), ct::load(x + i));
}

// Rows that a list names, and every other tile of a row
extern "C" __tile_global__ void picked(const float* x, const int* rows, float* out, float* spread) {
    ct::tensor_span all{x, ct::extents<unsigned, 16, 8>{}};
    auto list = ct::load(rows + ct::iota<ct::tile<int, line<4>>>());
    auto gather = ct::gather_scatter_view{all, ct::shape<4, 8>{}, 0_ic};
    auto to = ct::partition_view{ct::tensor_span{out, ct::extents<unsigned, 4, 8>{}}, ct::shape<4, 8>{}};
    to.store(gather.load_masked(list, 0), 0, 0);
    auto strided = ct::strided_view{ct::tensor_span{x, ct::extents<unsigned, 128>{}}, line<8>{}, ct::strides<unsigned, 16>{}};
    auto target = ct::partition_view{ct::tensor_span{spread, ct::extents<unsigned, 8>{}}, line<8>{}};
    target.store(strided.load_masked(3), 0);
}

extern "C" __tile_global__ void histogram(const int* x, int* bins, int n) {
    auto i = int(ct::bid().x) * 128 + ct::iota<ct::tile<int, line<128>>>();
    auto inside = i < n;
    auto bin = ct::load_masked(x + i, inside, 0);
    ct::atomic_add_masked<ct::memory_order::relaxed>(bins + bin, ct::ones<ct::tile<int, line<128>>>(), inside);
}

// Reads its bins while other blocks may still count
extern "C" __tile_global__ void impatient(int* bins, int* out) {
    ct::atomic_add<ct::memory_order::relaxed>(bins, 1);
    out[ct::bid().x] = bins[0];
}

// The last block to arrive sums what all have stored
extern "C" __tile_global__ void handed_over(float* parts, float* total, int* arrived) {
    int b = ct::bid().x, blocks = ct::num_blocks().x;
    parts[b] = float(b + 1);
    int before = ct::atomic_add<ct::memory_order::acq_rel>(arrived, 1);
    if (before == blocks - 1) {
        float sum = 0;
        for (auto i : ct::irange(0, blocks)) sum += parts[i];
        total[0] = sum;
    }
}

// The same, but the counter orders nothing
extern "C" __tile_global__ void handed_over_relaxed(float* parts, float* total, int* arrived) {
    int b = ct::bid().x, blocks = ct::num_blocks().x;
    parts[b] = float(b + 1);
    int before = ct::atomic_add<ct::memory_order::relaxed>(arrived, 1);
    if (before == blocks - 1) {
        float sum = 0;
        for (auto i : ct::irange(0, blocks)) sum += parts[i];
        total[0] = sum;
    }
}

extern "C" __tile_global__ void spin(int* flag, int* out) {
    while (ct::atomic_add<ct::memory_order::relaxed>(flag, 0) == 0) {
    }
    out[0] = 1;
}

extern "C" __tile_global__ void said(const int* x, int n) {
    printf("n is %d, half of it %g\n", n, n * 0.5);
    assert(n > 3 && "too few");
}

extern "C" __tile_global__ void softmax(const bf16* x, bf16* y, int rows, int columns) {
    ct::shape<1, 256> one;
    auto from = ct::partition_view{ct::tensor_span{x, ct::extents{rows, columns}}, one};
    auto to = ct::partition_view{ct::tensor_span{y, ct::extents{rows, columns}}, one};
    auto r = ct::bid().x;
    auto v = ct::element_cast<float>(from.load_masked<ct::view_padding::negative_inf>(r, 0));
    auto e = ct::exp(v - ct::reduce_max(v, 1_ic));
    to.store_masked(ct::element_cast<bf16>(e / ct::sum(e, 1_ic)), r, 0);
}

extern "C" [[cutile::hint(0, num_worker_warps_per_cta = 8, num_cta_in_cga = 2)]]
__tile_global__ void matmul(const bf16* a, const bf16* b, bf16* c, int m, int n, int k) {
    auto A = ct::partition_view{ct::tensor_span{a, ct::extents{m, k}}, ct::shape<128, 64>{}};
    auto B = ct::partition_view{ct::tensor_span{b, ct::extents{k, n}}, ct::shape<64, 128>{}};
    auto C = ct::partition_view{ct::tensor_span{c, ct::extents{m, n}}, ct::shape<128, 128>{}};
    auto i = ct::bid().x, j = ct::bid().y;
    auto total = ct::zeros<ct::tile<float, ct::shape<128, 128>>>();
    for (auto s : ct::irange(0, (k + 63) / 64)) {
        total = ct::mma(A.load_masked(i, s), B.load_masked(s, j), total);
    }
    C.store_masked(ct::element_cast<bf16>(total), i, j);
}

__tile__ const int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};

extern "C" __tile_global__ void table(const int* x, int* out) {
    int i = ct::bid().x;
    out[i] = primes[x[i]];
}

// Half precision, integers and shapes: y = f(x) for a tile of 8 by 16
extern "C" __tile_global__ void shapes(const int* x, int* turned, int* sums, int* running) {
    auto tile = ct::partition_view{ct::tensor_span{x, ct::extents<unsigned, 8, 16>{}}, ct::shape<8, 16>{}}.load(0, 0);
    auto flat = ct::iota<ct::tile<int, line<128>>>();
    ct::store(turned + flat, ct::reshape(ct::transpose(tile), line<128>{}));
    ct::store(sums + ct::iota<ct::tile<int, line<8>>>(), ct::reshape(ct::sum(tile, 1_ic), line<8>{}));
    ct::store(running + flat, ct::reshape(ct::partial_sum(tile, 1_ic), line<128>{}));
}
