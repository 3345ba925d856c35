// matmul_tile: out = a @ b on tensor cores, with an epilogue, in CUDA Tile C++.
//
//     out[m][n] = epilogue(sum over k of a[m][k] * b[k][n])   a: (M, K), b: (K, N), out: (M, N)
//
// A block computes tiles of BM x BN elements of out, and goes on to the next after a whole grid.
// The code says what a whole block does: the compiler shares a tile out among threads, brings it to
// shared memory some steps ahead (by TMA where rows are aligned), and chooses the instructions.
// Tiles that reach beyond a matrix read zeros there, and leave what lies beyond out as it is.
// Blocks take GROUP rows of tiles at a time, column by column: those that run together share L2.
//
// Cost: 2 M N K FLOPs, twice that for SwiGLU. Bound by the tensor cores where all sizes are large.
#include <cuda_tile.h>

#include "activations.cuh"

namespace ct = cuda::tiles;

constexpr int BIAS = 1, GELU = 2, RESIDUAL = 4, SWIGLU = 8;  // EPILOGUE: a sum of them, or the last
constexpr int TMA = 8;  // elements of 16 bytes, of which rows that TMA brings are multiples

// A matrix as tiles of R x C. Its columns lie one after the other where COLUMNS, else its rows;
// each is a multiple of ALIGN elements.
template <int R, int C, bool COLUMNS, int ALIGN, typename T>
__tile__ auto tiles(T* p, int rows, int cols) {
    T* start = ct::assume_aligned<ALIGN * sizeof(T)>(p);
    const int inner = ct::assume_divisible<ALIGN>(COLUMNS ? rows : cols);
    const ct::extents sizes{ct::assume_bounded_below<0>(COLUMNS ? inner : rows),
                            ct::assume_bounded_below<0>(COLUMNS ? cols : inner)};
    const ct::shape<R, C> shape;
    if constexpr (COLUMNS)
        return ct::partition_view{ct::tensor_span{start, sizes, ct::layout_left{}}, shape};
    else
        return ct::partition_view{ct::tensor_span{start, sizes}, shape};
}

// A tile, and how slow the compiler shall take memory to be, from 1 to 10: the slower, the more
// steps ahead it loads. 0 leaves that to it.
template <int LATENCY, typename View>
__tile__ auto load(View view, int r, int c) {
    decltype(view.load_masked(r, c)) tile;
    if constexpr (LATENCY > 0) [[cutile::hint(0, latency = LATENCY)]]
        tile = view.load_masked(r, c);
    else
        tile = view.load_masked(r, c);
    return tile;
}

// a: M_A x K_A or, where A_COLUMNS, K_A x M_A; b: K_B x N_B or N_B x K_B. They are M x K and K x N,
// and zeros behind in rows that TMA would not take: of multiples of 8 elements.
template <typename T, int BM, int BN, int BK, int GROUP, int WARPS, int CTAS, int BLOCKS,
          int LATENCY, bool A_COLUMNS, bool B_COLUMNS, int ALIGN, int EPILOGUE>
[[cutile::hint(0, num_worker_warps_per_cta = WARPS, num_cta_in_cga = CTAS, occupancy = BLOCKS)]]
__tile_global__ void matmul(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out,
                            const T* __restrict__ bias, const T* __restrict__ other, int m, int n,
                            int k, int m_a, int k_a, int k_b, int n_b) {
    const auto A = tiles<BM, BK, A_COLUMNS, TMA>(a, m_a, k_a);
    const auto B = tiles<BK, BN, B_COLUMNS, TMA>(b, k_b, n_b);
    const auto U = tiles<BK, BN, B_COLUMNS, TMA>(other, k_b, n_b);  // SwiGLU's second matrix
    const auto OUT = tiles<BM, BN, false, ALIGN>(out, m, n);
    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
    for (auto t : ct::irange(int(ct::bid().x), rows * cols, int(ct::num_blocks().x))) {
        const int top = t / (GROUP * cols) * GROUP, high = ct::min(rows - top, GROUP);
        const int r = top + t % (GROUP * cols) % high, c = t % (GROUP * cols) / high;
        auto sum = ct::zeros<ct::tile<float, ct::shape<BM, BN>>>(), up = sum;
        for (auto s : ct::irange(0, steps)) {
            const auto x = load<LATENCY>(A, r, s);
            sum = ct::mma(x, load<LATENCY>(B, s, c), sum);
            if constexpr (EPILOGUE == SWIGLU) up = ct::mma(x, load<LATENCY>(U, s, c), up);
        }
        if constexpr (EPILOGUE & BIAS) {
            const auto row = tiles<1, BN, false, ALIGN>(bias, 1, n).load_masked(0, c);
            sum = sum + ct::element_cast<float>(row);
        }
        if constexpr (EPILOGUE & GELU) sum = gelu(sum);
        if constexpr (EPILOGUE & RESIDUAL) {
            const auto tile = tiles<BM, BN, false, ALIGN>(other, m, n).load_masked(r, c);
            sum = sum + ct::element_cast<float>(tile);
        }
        if constexpr (EPILOGUE == SWIGLU) sum = up * silu(sum);
        OUT.store_masked(ct::element_cast<T>(sum), r, c);
    }
}
