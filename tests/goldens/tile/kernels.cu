// Whole kernels, small
#include "golden.cuh"

using Relaxed = ct::memory_order_relaxed_t;
using Device = ct::thread_scope_device_t;

template <class T, class Shape>
__tile__ auto matrix(T* p, int rows, int columns, Shape shape) {
    return ct::partition_view{ct::tensor_span{p, ct::extents{rows, columns}}, shape};
}

// c = a @ b: sizes are multiples of the tiles, addresses and rows multiples of 16 bytes
__tile_global__ void matmul(const bf16* __restrict__ a, const bf16* __restrict__ b,
                            float* __restrict__ c, int m, int n_, int k_) {
    int n = ct::assume_divisible<8>(n_), k = ct::assume_divisible<8>(k_);
    auto A = matrix(ct::assume_aligned(a, 16_ic), m, k, ct::shape<32, 16>{});
    auto B = matrix(ct::assume_aligned(b, 16_ic), k, n, ct::shape<16, 32>{});
    auto acc = ct::zeros<ct::tile<float, ct::shape<32, 32>>>();
    for (auto s : ct::irange(0, k / 16))
        acc = ct::mma(A.load(ct::bid().y, s), B.load(s, ct::bid().x), acc);
    auto C = matrix(ct::assume_aligned(c, 16_ic), m, n, ct::shape<32, 32>{});
    C.store(acc, ct::bid().y, ct::bid().x);
}

// c = a @ b^T of any size, with bias and ReLU, in f16
__tile_global__ void matmul_masked(const f16* __restrict__ a, const f16* __restrict__ b,
                                   const f16* __restrict__ bias, f16* __restrict__ c, int m, int n,
                                   int k) {
    auto A = matrix(a, m, k, ct::shape<32, 16>{});
    auto B = ct::partition_view{ct::tensor_span{b, ct::extents{k, n}, ct::layout_left{}},
                                ct::shape<16, 16>{}};
    auto acc = ct::zeros<ct::tile<float, ct::shape<32, 16>>>();
    for (auto s : ct::irange(0, (k + 15) / 16)) {
        acc = ct::mma(A.load_masked(ct::bid().y, s), B.load_masked(s, ct::bid().x), acc);
    }
    auto add =
        ct::element_cast<float>(matrix(bias, 1, n, ct::shape<1, 16>{}).load_masked(0, ct::bid().x));
    auto relu = ct::max(acc + add, 0.0f);
    matrix(c, m, n, ct::shape<32, 16>{})
        .store_masked(ct::element_cast<f16>(relu), ct::bid().y, ct::bid().x);
}

// One product for each plane of a batch
__tile_global__ void matmul_batched(const f16* __restrict__ a, const f16* __restrict__ b,
                                    float* __restrict__ c, int batch) {
    ct::extents left{batch, 16_ic, 32_ic};
    ct::extents right{batch, 32_ic, 16_ic};
    ct::extents out{batch, 16_ic, 16_ic};
    auto x = ct::partition_view{ct::tensor_span{a, left}, ct::shape<2, 16, 32>{}}.load_masked(
        ct::bid().x, 0, 0);
    auto y = ct::partition_view{ct::tensor_span{b, right}, ct::shape<2, 32, 16>{}}.load_masked(
        ct::bid().x, 0, 0);
    auto acc = ct::mma(x, y, ct::zeros<ct::tile<float, ct::shape<2, 16, 16>>>());
    ct::partition_view{ct::tensor_span{c, out}, ct::shape<2, 16, 16>{}}.store_masked(
        acc, ct::bid().x, 0, 0);
}

// The products' inner dimension cut in two: each tile block adds its part
__tile_global__ void matmul_split(const f16* __restrict__ a, const f16* __restrict__ b, float* c,
                                  int k) {
    auto A = matrix(a, 32, k, ct::shape<32, 32>{});
    auto B = matrix(b, k, 32, ct::shape<32, 32>{});
    auto part = ct::mma(A.load(0, ct::bid().x), B.load(ct::bid().x, 0),
                        ct::zeros<ct::tile<float, ct::shape<32, 32>>>());
    matrix(c, 32, 32, ct::shape<32, 32>{}).atomic_add(part, Relaxed{}, Device{}, 0, 0);
}

__tile_global__ void softmax(const float* __restrict__ x, float* __restrict__ y, int rows,
                             int columns) {
    auto v = matrix(x, rows, columns, ct::shape<1, 64>{})
                 .load_masked(ct::view_padding_negative_inf_t{}, ct::bid().x, 0);
    auto e = ct::exp(v - ct::reduce_max(v, 1_ic));
    matrix(y, rows, columns, ct::shape<1, 64>{}).store_masked(e / ct::sum(e, 1_ic), ct::bid().x, 0);
}

__tile_global__ void layernorm(const float* __restrict__ x, const float* __restrict__ w,
                               const float* __restrict__ b, float* __restrict__ y, int rows,
                               int columns, float eps) {
    auto v = matrix(x, rows, columns, ct::shape<4, 64>{}).load_masked(ct::bid().x, 0);
    auto i = ct::reshape(ct::iota<ct::tile<int, ct::shape<64>>>(), ct::shape<1, 64>{});
    float count = float(columns);
    auto mean = ct::sum(v, 1_ic) / count;
    auto centred = ct::select(ct::broadcast<ct::shape<4, 64>>(i < columns), v - mean, v * 0.0f);
    auto scale = ct::rsqrt(ct::sum(centred * centred, 1_ic) / count + eps);
    auto weight = matrix(w, 1, columns, ct::shape<1, 64>{}).load_masked(0, 0);
    auto bias = matrix(b, 1, columns, ct::shape<1, 64>{}).load_masked(0, 0);
    matrix(y, rows, columns, ct::shape<4, 64>{})
        .store_masked(centred * scale * weight + bias, ct::bid().x, 0);
}

__tile_global__ void rmsnorm(const bf16* __restrict__ x, const bf16* __restrict__ w,
                             bf16* __restrict__ y, int rows) {
    auto v = ct::element_cast<float>(matrix(x, rows, 64, ct::shape<1, 64>{}).load(ct::bid().x, 0));
    auto scale = ct::rsqrt(ct::sum(v * v, 1_ic) * (1.0f / 64) + 1e-6f);
    auto weight = ct::element_cast<float>(matrix(w, 1, 64, ct::shape<1, 64>{}).load(0, 0));
    matrix(y, rows, 64, ct::shape<1, 64>{})
        .store(ct::element_cast<bf16>(v * scale * weight), ct::bid().x, 0);
}

// Attention forward with a running maximum and sum; one head for each bid().y; causal
__tile_global__ void attention(const bf16* __restrict__ q, const bf16* __restrict__ k,
                               const bf16* __restrict__ v, float* __restrict__ o, int t,
                               float scale) {
    constexpr int D = 32, ROWS = 16, KEYS = 16;
    int head = int(ct::bid().y) * t * D, row = ct::bid().x;
    auto Q = matrix(q + head, t, D, ct::shape<ROWS, D>{}).load_masked(row, 0);
    auto K = ct::partition_view{ct::tensor_span{k + head, ct::extents{D, t}, ct::layout_left{}},
                                ct::shape<D, KEYS>{}};
    auto V = matrix(v + head, t, D, ct::shape<KEYS, D>{});
    auto most = ct::full<ct::tile<float, ct::shape<ROWS, 1>>>(-1e30f);
    auto total = ct::zeros<ct::tile<float, ct::shape<ROWS, 1>>>();
    auto acc = ct::zeros<ct::tile<float, ct::shape<ROWS, D>>>();
    auto i =
        ct::reshape(ct::iota<ct::tile<int, ct::shape<ROWS>>>(), ct::shape<ROWS, 1>{}) + row * ROWS;
    for (auto s : ct::irange(0, row + 1)) {
        auto j = ct::reshape(ct::iota<ct::tile<int, ct::shape<KEYS>>>(), ct::shape<1, KEYS>{}) +
                 s * KEYS;
        auto scores =
            ct::mma(Q, K.load_masked(0, s), ct::zeros<ct::tile<float, ct::shape<ROWS, KEYS>>>()) *
            scale;
        scores = ct::select(j <= i && j < t, scores,
                            ct::full<ct::tile<float, ct::shape<ROWS, KEYS>>>(-1e30f));
        auto higher = ct::max(most, ct::reduce_max(scores, 1_ic));
        auto p = ct::exp(scores - higher);
        auto shrink = ct::exp(most - higher);
        total = total * shrink + ct::sum(p, 1_ic);
        acc = ct::mma(ct::element_cast<bf16>(p), V.load_masked(s, 0), acc * shrink);
        most = higher;
    }
    matrix(o + head, t, D, ct::shape<ROWS, D>{}).store_masked(acc / total, row, 0);
}

__tile_global__ void transpose(const u16* __restrict__ x, u16* __restrict__ y, int m, int n) {
    auto tile = matrix(x, m, n, ct::shape<16, 32>{}).load_masked(ct::bid().y, ct::bid().x);
    matrix(y, n, m, ct::shape<32, 16>{})
        .store_masked(ct::transpose(tile), ct::bid().x, ct::bid().y);
}

__tile_global__ void histogram(const u8* __restrict__ x, u32* counts, int n) {
    auto i = int(ct::bid().x) * N + ct::iota<ct::tile<int, ct::shape<N>>>();
    auto bin = ct::element_cast<int>(ct::load_masked(x + i, i < n, u8(0))) >> 4;
    ct::atomic_add_masked(counts + bin, ct::ones<ct::tile<u32, ct::shape<N>>>(), i < n, Relaxed{},
                          Device{});
}

// Prefix sums of rows, each longer than a tile
__tile_global__ void prefix_sum(const int* __restrict__ x, int* __restrict__ y, int columns) {
    int row = ct::bid().x, before = 0;
    for (int first = 0; first < columns; first += N) {
        auto i = first + ct::iota<ct::tile<int, ct::shape<N>>>();
        auto v = ct::load_masked(x + row * columns + i, i < columns, 0);
        ct::store_masked(y + row * columns + i, ct::partial_sum(v, 0_ic) + before, i < columns);
        before += int(ct::sum(v, 0_ic));
    }
}

// Sum in two stages: the last tile block to arrive adds up what all wrote
__tile_global__ void reduce_two_stages(const double* x, double* parts, unsigned* arrived,
                                       double* out, int n) {
    int b = ct::bid().x;
    auto i = b * N + ct::iota<ct::tile<int, ct::shape<N>>>();
    ct::atomic_store(parts + b, double(ct::sum(ct::load_masked(x + i, i < n, 0.0), 0_ic)),
                     Relaxed{}, Device{});
    unsigned before = ct::atomic_add(arrived, 1u, ct::memory_order_acq_rel_t{}, Device{});
    if (before != ct::num_blocks().x - 1) return;
    auto j = ct::iota<ct::tile<int, ct::shape<8>>>();
    auto all = ct::atomic_load_masked(parts + j, j < int(ct::num_blocks().x), 0.0,
                                      ct::memory_order_acquire_t{}, Device{});
    out[0] = double(ct::sum(all, 0_ic));
}

// Rows of a table by number, scaled; numbers beyond it give zeros
__tile_global__ void embedding(const bf16* __restrict__ table, const int* __restrict__ ids,
                               float* __restrict__ out, int rows, int count) {
    auto place = ct::gather_scatter_view{ct::tensor_span{table, ct::extents{rows, 32}},
                                         ct::shape<16, 32>{}, 0_ic};
    auto i = int(ct::bid().x) * 16 + ct::iota<ct::tile<int, ct::shape<16>>>();
    auto id = ct::load_masked(ids + i, i < count, rows);
    auto picked =
        ct::element_cast<float>(place.load_masked(ct::element_cast<unsigned>(id), 0)) * 5.656854f;
    matrix(out, count, 32, ct::shape<16, 32>{}).store_masked(picked, ct::bid().x, 0);
}

// Five-point stencil on a grid with fixed borders
__tile_global__ void stencil(const float* __restrict__ x, float* __restrict__ y, int m, int n) {
    auto i = int(ct::bid().y) * 8 +
             ct::reshape(ct::iota<ct::tile<int, ct::shape<8>>>(), ct::shape<8, 1>{});
    auto j = int(ct::bid().x) * 16 +
             ct::reshape(ct::iota<ct::tile<int, ct::shape<16>>>(), ct::shape<1, 16>{});
    auto inside = i > 0 && i < m - 1 && j > 0 && j < n - 1;
    auto at = i * n + j;
    auto all = i < m && j < n;
    auto sum =
        ct::load_masked(x + at - n, inside, 0.0f) + ct::load_masked(x + at + n, inside, 0.0f) +
        ct::load_masked(x + at - 1, inside, 0.0f) + ct::load_masked(x + at + 1, inside, 0.0f);
    auto here = ct::load_masked(x + at, all, 0.0f);
    ct::store_masked(y + at, ct::select(inside, sum * 0.25f, here), all);
}

__tile_global__ void gelu_and_mul(const bf16* __restrict__ gate, const bf16* __restrict__ up,
                                  bf16* __restrict__ out, int n) {
    auto view = [&](auto* p) {
        return ct::partition_view{ct::tensor_span{p, ct::extents{n}}, ct::shape<N>{}};
    };
    auto g = ct::element_cast<float>(view(gate).load_masked(ct::bid().x));
    auto u = ct::element_cast<float>(view(up).load_masked(ct::bid().x));
    auto y = 0.5f * g * (1.0f + ct::tanh(0.79788456f * (g + 0.044715f * g * g * g))) * u;
    view(out).store_masked(ct::element_cast<bf16>(y), ct::bid().x);
}

// The largest element of each row, and where it lies
__tile_global__ void argmax_rows(const float* __restrict__ x, float* __restrict__ most,
                                 int* __restrict__ where, int rows, int columns) {
    auto v = matrix(x, rows, columns, ct::shape<8, 32>{})
                 .load_masked(ct::view_padding_negative_inf_t{}, ct::bid().x, 0);
    matrix(most, rows, 1, ct::shape<8, 1>{}).store_masked(ct::reduce_max(v, 1_ic), ct::bid().x, 0);
    matrix(where, rows, 1, ct::shape<8, 1>{})
        .store_masked(ct::element_cast<int>(ct::max_element(v, 1_ic)), ct::bid().x, 0);
}

// Rows to e4m3 with a scale for each
__tile_global__ void quantize_rows(const float* __restrict__ x, e4m3* __restrict__ q,
                                   float* __restrict__ scales, int rows) {
    auto v = matrix(x, rows, 32, ct::shape<4, 32>{}).load(ct::bid().x, 0);
    auto scale = ct::max(ct::reduce_max(ct::abs(v), 1_ic), 1e-12f) / 448.0f;
    matrix(q, rows, 32, ct::shape<4, 32>{})
        .store(ct::element_cast<e4m3>(v / scale), ct::bid().x, 0);
    matrix(scales, rows, 1, ct::shape<4, 1>{}).store(scale, ct::bid().x, 0);
}
