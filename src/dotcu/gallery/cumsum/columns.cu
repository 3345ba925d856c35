// columns: out[o, i, c] = x[o, 0, c] + ... + x[o, i, c], or from the last row on (reverse).
//
//     x, out: [outer, n, inner], contiguous; neighbours of a scan are `inner` elements apart
//
// Idea: that of kernel.cu, rotated by 90 degrees. A thread has a vector of neighbouring columns in
// some consecutive rows; `lanes` threads are side by side, so that they move whole lines, and the
// other threads of the block are below them. Shuffles and shared memory add up the sums of the
// threads above, column by column; tiles send each other the sums of their columns. Rows may begin
// `anywhere`, in x and out alike or not.
//
// Cost: as in kernel.cu, and a message of 8 bytes for each column of a tile.
#include <dotcu/grid.cuh>
#include "look_back.cuh"
#include "rows.cuh"

// One block for each tile, which has `lanes` vectors of columns and as many rows as its threads
// hold. `across` tiles are side by side, and `tiles` below each other.
template <typename T, typename Out, typename Sum, int width, int rows, int threads, int lanes,
          bool anywhere, bool look_back, bool reverse>
__global__ void __launch_bounds__(threads, 1024 / threads)
    cumsum_columns(const T* x, Out* out, long long n, long long inner, int across, int tiles,
                   word* messages) {
    using V = vector<T, width>;
    using Carry = typename carry_of<Sum>::type;
    constexpr int columns = lanes * width, warps = threads / warp_size;
    constexpr int pitch = anywhere ? lanes + 1 : threads;  // between two rows of a thread
    __shared__ V parts[rows * (anywhere ? threads / lanes * pitch : threads)];
    __shared__ Carry of_warp[warps][columns];
    const int tile = blockIdx.x / across % tiles, strip = blockIdx.x % across;
    const long long outer = blockIdx.x / across / tiles;
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const int mine = lane % lanes * width;
    const long long column = static_cast<long long>(strip) * columns + mine;
    const long long first = (static_cast<long long>(tile) * threads + threadIdx.x) / lanes * rows;
    const long long left = anywhere || column < inner ? n - first : 0;  // rows from there on
    const long long start = (outer * n + (reverse ? n - 1 - first : first)) * inner + column;
    const long long step = reverse ? -inner : inner;
    const int inside = min(inner - column + mine, 2ll * columns);  // columns from the strip's on

    V* part = parts + (anywhere ? threadIdx.x / lanes * rows * pitch + mine / width : threadIdx.x);
    if constexpr (anywhere)
        load_words<rows, lanes>(part, x, x + start - mine, step, left, mine, inside);
    else
        load_rows<rows, pitch>(part, x + start, step, left);
    commit_copies();
    wait_for_copies<0>();
    if constexpr (anywhere) shift_words<rows, lanes>(part, x + start, step);

    vector<Sum, width> sum{}, before;
#pragma unroll
    for (int k = 0; k < rows; ++k) {
        const V v = part[k * pitch];
        for (int j = 0; j < width; ++j) sum[j] += static_cast<Sum>(v[j]);
    }
    // sum[j]: over the warp's threads down to this one; before[j]: over those above it.
#pragma unroll
    for (int j = 0; j < width; ++j) {
        for (int distance = lanes; distance < warp_size; distance *= 2) {
            const Sum other = __shfl_up_sync(all_lanes, sum[j], distance);
            if (lane >= distance) sum[j] += other;
        }
        before[j] = __shfl_up_sync(all_lanes, sum[j], lanes % warp_size);
        if (lane < lanes) before[j] = 0;
        if (lane >= warp_size - lanes) of_warp[warp][mine + j] = sum[j];
    }
    __syncthreads();

    Carry base[width] = {};
    for (int other = 0; other < warp; ++other)
        for (int j = 0; j < width; ++j) base[j] += of_warp[other][mine + j];
    if constexpr (look_back) {
        constexpr int slots = threads / columns;
        __shared__ Carry of_slot[threads], of_column[columns];
        Carry of_tile = 0;
        for (int other = 0; other < warps; ++other)
            of_tile += of_warp[other][threadIdx.x % columns];
        wait_for_earlier();
        messages += (outer * across + strip) * words_of_row<Carry>(tiles, ahead * slots) * columns;
        const Carry sum = above<columns, slots>(messages, tile, tiles, of_tile, of_slot);
        if (threadIdx.x < columns) of_column[threadIdx.x] = sum;
        __syncthreads();
        for (int j = 0; j < width; ++j) base[j] += of_column[mine + j];
    }
    for (int j = 0; j < width; ++j) before[j] = static_cast<Sum>(base[j] + before[j]);
    vector<Sum, width> within{};
#pragma unroll
    for (int k = 0; k < rows; ++k) {
        const V v = part[k * pitch];
        vector<Out, width> y;
        for (int j = 0; j < width; ++j) {
            within[j] += static_cast<Sum>(v[j]);
            y[j] = static_cast<Out>(before[j] + within[j]);
        }
        Out* const row = out + start + k * step;
        if constexpr (anywhere)
            store_across<lanes>(row - mine, mine, k < left ? inside : 0, y, part + k * pitch);
        else if (k < left)
            store_whole(row, y);
    }
}
