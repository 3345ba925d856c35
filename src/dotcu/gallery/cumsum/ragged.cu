// ragged columns: columns.cu where rows begin anywhere, and many are below each other.
//
//     x, out: [outer, n, inner], contiguous; neighbours of a scan are `inner` elements apart
//
// Idea: a thread has a column, so no vector is shifted into place. The words of 16 bytes that hold
// a tile's rows are copied to shared memory as they lie. A thread adds up its column, receives the
// sum of the tiles above, adds up again and puts each sum in the place of its element. Whole words
// go to `out`, and the elements at the ends of rows one by one. In shared memory a column shifts
// from row to row, but is back every `width` rows, so `width` addresses serve for all of them.
//
// Cost: as in columns.cu. Each element is read twice from shared memory, and written there once.
#include <dotcu/grid.cuh>
#include "look_back.cuh"
#include "rows.cuh"

// One block for each tile: `columns` columns side by side, at most side - width + 1, a thread for
// each, and `rows` rows for each thread of a column. `across` tiles are side by side, and `tiles`
// below each other. x and out begin at multiples of 16 bytes.
template <typename T, typename Sum, int side, int threads, int rows, bool reverse>
__global__ void __launch_bounds__(threads, 3)
    cumsum_ragged(const T* x, T* out, long long n, long long inner, long long elements, int columns,
                  int across, int tiles, word* messages) {
    constexpr int width = lanes_of_16_bytes<T>, words = side / width, below = threads / words;
    constexpr int slices = threads / side, tile_rows = slices * rows, chunk = 16;
    static_assert(rows % chunk == 0 && chunk % width == 0, "addresses recur");
    using Carry = typename carry_of<Sum>::type;
    extern __shared__ uint4 memory[];
    T* const part = reinterpret_cast<T*>(memory);
    const int strip = blockIdx.x % across, tile = blockIdx.x / across % tiles;
    const long long outer = blockIdx.x / across / tiles, first = 1ll * tile * tile_rows;
    const long long step = reverse ? -inner : inner, left_column = 1ll * strip * columns;
    const long long start = (outer * n + (reverse ? n - 1 - first : first)) * inner + left_column;
    const int count = min(inner - left_column, 1ll * columns);
    const int left = min(n - first, 1ll * tile_rows);

    const int row = threadIdx.x / words, word = threadIdx.x % words * width;
    const long long from = start + row * step + word - lane_of(x + start + row * step);
    if (from - start - row * step < count)
        load_tile<tile_rows / below, threads>(part + threadIdx.x * width, x, from, below * step,
                                              elements, (left - row + below - 1) / below);
    commit_copies();
    const int column = threadIdx.x % side, slice = threadIdx.x / side;
    T* at[width];
#pragma unroll
    for (int j = 0; j < width; ++j)
        at[j] = part + (slice * rows + j) * side + min(column, count - 1) +
                lane_of(x + start + j * step);
    wait_for_copies<0>();
    __syncthreads();

    __shared__ Carry of_slice[threads], of_slot[threads], of_column[side];
    Carry base = 0, of_tile = 0, of_rows = 0;
#pragma unroll 1
    for (int k = 0; k < rows * side; k += chunk * side) {
        Sum sum = 0;
#pragma unroll
        for (int j = 0; j < chunk; ++j) sum += Sum(at[j % width][k + j / width * width * side]);
        of_rows += sum;
    }
    of_slice[threadIdx.x] = of_rows;
    __syncthreads();
    for (int other = 0; other < slices; ++other) {
        if (other == slice) base = of_tile;
        of_tile += of_slice[other * side + column];
    }
    wait_for_earlier();
    messages += (outer * across + strip) * words_of_row<Carry>(tiles, ahead * slices) * side;
    of_tile = above<side, slices>(messages, tile, tiles, of_tile, of_slot);
    if (slice == 0) of_column[column] = of_tile;
    __syncthreads();
    base += of_column[column];
    const int end = column < count ? rows * side : 0;
#pragma unroll 1
    for (int k = 0; k < end; k += chunk * side) {
        T v[chunk];
#pragma unroll
        for (int j = 0; j < chunk; ++j) v[j] = at[j % width][k + j / width * width * side];
        Sum within = 0;
        const Sum before = static_cast<Sum>(base);
#pragma unroll
        for (int j = 0; j < chunk; ++j) {
            within += static_cast<Sum>(v[j]);
            at[j % width][k + j / width * width * side] = T(before + within);
        }
        base += within;
    }
    __syncthreads();
    store_tile<side, threads>(out, part, start, step, left, count);
}
