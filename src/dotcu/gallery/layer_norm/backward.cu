// layer_norm_backward: the gradients of layer_norm by x, by weight and by bias.
//
//     y = (x - mean) * r, g = grad * weight               r = rsqrt(variance + eps), of each row
//     grad_x = r * (g - mean(g) - y * mean(g * y))        means over the n columns
//     grad_weight = sum over all rows of grad * y, grad_bias = sum over all rows of grad
//
// Idea: that of rms_norm_backward. As few blocks as saturate the memory loop over many rows each;
// `lanes` threads share a row and accumulate their columns' part of both sums in registers. The
// next rows are copied into a ring in shared memory, of which each thread reads only what it
// copied, so a row costs one barrier, that of its sums. A second kernel adds up the blocks' parts
// in a fixed order. Rows that no block holds are spread over the grid's y, as a cluster or with
// sums `given`. Rows may begin `anywhere`, as there.
//
// Cost: 3 rows n elements moved, 4 more if sums are given; 16 FLOPs an element.
// Source: Tri Dao, QuACK, 2025, for clusters; PTX ISA, cp.async.

#include <dotcu/async.cuh>
#include <dotcu/grid.cuh>
#include <dotcu/row.cuh>
#include <dotcu/vector.cuh>

// The sums of (x - pivot)^2, g and g * (x - pivot) over some elements of a row.
template <typename Sum>
struct Sums {
    Sum count, pivot, squares, of_g, of_gx;

    __device__ Sums operator+(Sums b) const {
        return {count, pivot, squares + b.squares, of_g + b.of_g, of_gx + b.of_gx};
    }
    // Returns the same sums about another pivot, if this one is the elements' mean.
    __device__ Sums about(Sum other) const {
        const Sum shift = pivot - other;
        return {count, other, squares + count * shift * shift, of_g, of_gx + of_g * shift};
    }
};

template <typename Sum>
__device__ Sums<Sum> __shfl_xor_sync(unsigned lanes, Sums<Sum> a, int distance) {
    return {a.count, a.pivot, __shfl_xor_sync(lanes, a.squares, distance),
            __shfl_xor_sync(lanes, a.of_g, distance), __shfl_xor_sync(lanes, a.of_gx, distance)};
}

// Returns the sums of a row about its mean, from those of its warps. `share`: 1 / n.
template <int lanes, typename Sum>
__device__ Sums<Sum> join(const Sums<Sum>& mine, Sums<Sum>* all, Sum share) {
    if constexpr (lanes <= dotcu::warp_size) return mine;
    dotcu::share_row<lanes>(mine, all);
    constexpr int warps = dotcu::row_warps<lanes>;
    const int end = warps * dotcu::cluster_blocks();
    Sum sum = 0;
#pragma unroll 1
    for (int w = threadIdx.x % warps; w < end; w += warps) sum += all[w].count * all[w].pivot;
    const Sum mean = dotcu::reduce_warp<warps>(sum, dotcu::plus()) * share;
    Sums<Sum> sums = {0, mean, 0, 0, 0};
#pragma unroll 1
    for (int w = threadIdx.x % warps; w < end; w += warps) sums = sums + all[w].about(mean);
    return dotcu::reduce_warp<warps>(sums, dotcu::plus());
}

template <int lanes>
constexpr int threads_of = lanes <= dotcu::warp_size ? 256 : lanes;  // short rows share a block

// The blocks of a multiprocessor for which registers must suffice.
template <int vectors, int lanes>
constexpr int blocks_of =
    threads_of<lanes> > 256 ? 1 : (vectors > 3 ? 384 : 512) / threads_of<lanes>;

template <typename T, typename W, typename Sum, int width, int vectors, int lanes, int stages,
          bool exact, bool anywhere, bool given>
__global__ void __launch_bounds__(threads_of<lanes>, blocks_of<vectors, lanes>)
    layer_norm_backward(const T* grad, const T* x, const W* weight, const Sum* of_rows, T* grad_x,
                        Sum* parts, long long rows, int n, Sum share, Sum eps) {
    constexpr int threads = threads_of<lanes>, stride = lanes * width, columns = vectors * stride;
    constexpr int group = dotcu::row_group<lanes>;
    using V = dotcu::vector<T, width>;
    extern __shared__ uint4 memory[];
    auto ring = reinterpret_cast<V(*)[2][vectors][threads]>(memory);
    __shared__ Sums<Sum> of_warp[2][dotcu::max_cluster * dotcu::row_warps<lanes>];
    const int me = threadIdx.x;
    const long long step = gridDim.x * static_cast<long long>(threads / lanes);
    const long long first = blockIdx.x * static_cast<long long>(threads / lanes);
    // The elements from a multiple of 16 bytes to a row: the same for all rows of a thread.
    const auto before = [&](long long row) { return anywhere ? dotcu::lane_of(x + row * n) : 0; };
    const int column = blockIdx.y * columns + me % lanes * width - before(first + me / lanes);
    dotcu::launch_later();
    dotcu::cluster_arrive();

    const auto copy = [&](V* to, const T* from, int i) {
        if constexpr (anywhere)
            dotcu::copy_part_later(to, from + i, min(n - i, width));
        else
            dotcu::copy_later(to, from + i);
    };
    const auto fetch = [&](long long row, int slot) {
        if (row < rows) {
            dotcu::each_vector<vectors, stride, exact>(column, n, [&](int v, int i) {
                copy(&ring[slot][0][v][me], grad + row * n, i);
                copy(&ring[slot][1][v][me], x + row * n, i);
            });
        }
        dotcu::commit_copies();
    };
    const auto fetched = [&](int slot, int input, int v) {
        V value = ring[slot][input][v][me];
        if (anywhere && v == 0 && column < 0) {  // the end of the row before
            for (int k = 0; k < width; ++k) value[k] = k < -column ? static_cast<T>(0) : value[k];
        }
        return value;
    };
    for (int slot = 0; slot < stages; ++slot) fetch(first + me / lanes + slot * step, slot);

    dotcu::vector<W, width> scale[vectors];
    Sum of_weight[vectors][width] = {}, of_bias[vectors][width] = {}, columns_of_group = 0;
    dotcu::each_vector<vectors, stride, exact>(column, n, [&](int v, int i) {
        if constexpr (anywhere)
            for (int k = 0; k < width; ++k)
                scale[v][k] = i + k < 0 || i + k >= n ? static_cast<W>(0) : weight[i + k];
        else
            scale[v] = dotcu::load<width>(weight + i);
        columns_of_group += anywhere ? min(width, n - i) + min(i, 0) : width;
    });
    columns_of_group = dotcu::reduce_warp<group>(columns_of_group, dotcu::plus());
    int slot = 0, turn = 0;
    dotcu::cluster_wait();
    for (long long begin = first; begin < rows; begin += step) {
        const long long row = begin + me / lanes;
        const int end = row < rows ? n : -width;  // before any column
        dotcu::wait_for_copies<stages - 1>();
        Sum mean, r, mean_g, mean_gy;
        if constexpr (given) {
            mean = of_rows[4 * row], r = of_rows[4 * row + 1];
            mean_g = of_rows[4 * row + 2], mean_gy = of_rows[4 * row + 3];
        } else {
            Sum sum = 0;
            dotcu::each_vector<vectors, stride, exact>(column, end, [&](int v, int i) {
                const auto in = dotcu::widen<Sum>(fetched(slot, 1, v));
                for (int k = 0; k < width; ++k) sum += in[k];
            });
            sum = dotcu::reduce_warp<group>(sum, dotcu::plus());
            Sums<Sum> sums = {columns_of_group, sum / max(columns_of_group, Sum(1)), 0, 0, 0};
            dotcu::each_vector<vectors, stride, exact>(column, end, [&](int v, int i) {
                const auto dy = dotcu::widen<Sum>(fetched(slot, 0, v));
                auto in = dotcu::widen<Sum>(fetched(slot, 1, v));
                const auto by = dotcu::widen<Sum>(scale[v]);
                if (anywhere && (i < 0 || i + width > n)) {
                    for (int k = 0; k < width; ++k)
                        in[k] = i + k < 0 || i + k >= n ? sums.pivot : in[k];
                }
                for (int k = 0; k < width; ++k) {
                    const Sum g = dotcu::rounded_product(dy[k], by[k]), off = in[k] - sums.pivot;
                    sums = sums + Sums<Sum>{0, 0, off * off, g, g * off};
                }
            });
            sums = dotcu::reduce_warp<group>(sums, dotcu::plus());
            sums = join<lanes>(sums, of_warp[turn ^= 1], share);
            mean = sums.pivot, r = rsqrt(sums.squares * share + eps);
            mean_g = sums.of_g * share, mean_gy = r * sums.of_gx * share;
            if (dotcu::any_of_row<lanes>(mean_gy - mean_gy != 0)) {  // overflow: scale by r first
                Sum of_gy = 0;
#pragma unroll 1  // rarely runs: saves registers
                for (int j = 0; j < vectors * width; ++j) {
                    const int v = j / width, k = j % width, i = column + v * stride + k;
                    if (i >= end) break;
                    if (i < 0) continue;
                    const Sum y = (Sum(x[row * n + i]) - mean) * r;
                    of_gy += Sum(grad[row * n + i]) * Sum(weight[i]) * y;
                }
                Sum* scratch = &of_warp[turn ^= 1][0].count;
                mean_gy = dotcu::reduce_row<lanes>(of_gy, scratch, dotcu::plus()) * share;
            }
        }
        dotcu::each_vector<vectors, stride, exact>(column, end, [&](int v, int i) {
            dotcu::vector<Sum, width> result;
            const auto dy = dotcu::widen<Sum>(fetched(slot, 0, v));
            const auto in = dotcu::widen<Sum>(fetched(slot, 1, v));
            const auto by = dotcu::widen<Sum>(scale[v]);
            for (int k = 0; k < width; ++k) {
                const Sum y = (in[k] - mean) * r;
                of_weight[v][k] += dy[k] * y;
                of_bias[v][k] += dy[k];
                result[k] = r * (dotcu::rounded_product(dy[k], by[k]) - mean_g - y * mean_gy);
            }
            dotcu::store_inside<anywhere>(grad_x + row * n, i, n, dotcu::to<T>(result));
        });
        fetch(row + stages * step, slot);
        slot = slot + 1 == stages ? 0 : slot + 1;
    }

    // The sums of the rows that a block computed side by side, in the ring's memory.
    dotcu::wait_for_copies<0>();
    auto of_row = reinterpret_cast<Sum(*)[columns]>(memory);
    const auto write = [&](const Sum(&total)[vectors][width], Sum* to) {
        __syncthreads();
        for (int v = 0; v < vectors; ++v) {
            for (int k = 0; k < width; ++k) {
                of_row[me / lanes][v * stride + me % lanes * width + k] = total[v][k];
            }
        }
        __syncthreads();
        const int left = before(first);
        for (int i = me; i < columns; i += threads) {
            const int c = blockIdx.y * columns + i - left;
            if (c < 0 || c >= n) continue;
            Sum sum = 0;
            for (int row = 0; row < threads / lanes; ++row)
                sum += of_row[row][i - left + before(first + row)];
            to[blockIdx.x * static_cast<long long>(n) + c] = sum;
        }
    };
    write(of_weight, parts);
    write(of_bias, parts + gridDim.x * static_cast<long long>(n));
}

// mean, r, mean(g) and mean(g * y) of each row, one block per row: for rows that no cluster holds.
template <typename T, typename W, typename Sum, int width, int threads>
__global__ void __launch_bounds__(threads)
    row_sums(const T* grad, const T* x, const W* weight, Sum* of_rows, int n, Sum share, Sum eps) {
    __shared__ Sum of_warp[dotcu::warp_size];
    __shared__ Sums<Sum> of_sums[dotcu::warp_size];
    const long long row = blockIdx.x;
    Sum sum = 0;
    for (int i = threadIdx.x * width; i < n; i += threads * width) {
        const auto in = dotcu::load<width>(x + row * n + i);
        for (int k = 0; k < width; ++k) sum += Sum(in[k]);
    }
    const Sum mean = dotcu::reduce_block<threads>(sum, of_warp, dotcu::plus()) * share;
    Sums<Sum> sums = {0, mean, 0, 0, 0};
    for (int i = threadIdx.x * width; i < n; i += threads * width) {
        const auto dy = dotcu::load<width>(grad + row * n + i);
        const auto in = dotcu::load<width>(x + row * n + i);
        const auto scale = dotcu::load<width>(weight + i);
        for (int k = 0; k < width; ++k) {
            const Sum g = Sum(dy[k]) * Sum(scale[k]), off = Sum(in[k]) - mean;
            sums = sums + Sums<Sum>{0, 0, off * off, g, g * off};
        }
    }
    sums = dotcu::reduce_block<threads>(sums, of_sums, dotcu::plus());
    if (threadIdx.x > 0) return;
    const Sum r = rsqrt(sums.squares * share + eps);
    of_rows[4 * row] = mean, of_rows[4 * row + 1] = r;
    of_rows[4 * row + 2] = sums.of_g * share, of_rows[4 * row + 3] = r * sums.of_gx * share;
}

// A gradient, by the grid's y that of weight or of bias: the sum of parts[y][i][j] over i, in
// column j. A block adds up `columns` of them.
template <typename W, typename Sum, int columns, int threads>
__global__ void __launch_bounds__(threads)
    sum_parts(const Sum* parts, W* grad_weight, W* grad_bias, long long count, int n) {
    constexpr int side_by_side = threads / columns;
    __shared__ Sum of_part[side_by_side][columns + 1];  // columns begin in different banks
    const int j = threadIdx.x % columns, i = threadIdx.x / columns;
    const long long column = blockIdx.x * static_cast<long long>(columns) + j;
    dotcu::wait_for_earlier();
    parts += blockIdx.y * count * n;
    Sum sum = 0;
    if (column < n) {
#pragma unroll 8
        for (long long part = i; part < count; part += side_by_side) {
            sum += parts[part * n + column];
        }
    }
    of_part[i][j] = sum;
    __syncthreads();
    const int lane = threadIdx.x % side_by_side, mine = threadIdx.x / side_by_side;
    sum = dotcu::reduce_warp<side_by_side>(of_part[lane][mine], dotcu::plus());
    const long long to = blockIdx.x * static_cast<long long>(columns) + mine;
    if (lane == 0 && to < n) (blockIdx.y == 0 ? grad_weight : grad_bias)[to] = static_cast<W>(sum);
}
