// layer_norm_backward: the gradients of layer_norm by x, by weight and by bias.
//
//     y = (x - mean) * r, g = grad * weight               r = rsqrt(variance + eps), of each row
//     grad_x = r * (g - mean(g) - y * mean(g * y))        means over the n columns
//     grad_weight = sum over all rows of grad * y, grad_bias = sum over all rows of grad
//
// Idea: that of rms_norm_backward. As few blocks as saturate the memory loop over many rows each;
// `lanes` threads share a row and accumulate their columns' part of both sums in registers. The
// next rows are copied into a ring in shared memory, of which each thread reads only what it
// copied, so a row costs one barrier, that of its sums; or a thread sums up the next row before it
// completes this one (`ahead`), so that no warp waits for another's sums. A second kernel adds up
// the blocks' parts in a fixed order. Rows that no block holds are spread over the grid's y, as a
// cluster or with sums `given`. Rows may begin `anywhere`, as there.
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
__device__ Sums<Sum> join(const Sums<Sum>& mine, const Sums<Sum>* all, Sum share) {
    if constexpr (lanes <= dotcu::warp_size) return mine;
    constexpr int step = dotcu::row_readers<lanes>;
    const int end = dotcu::row_warps<lanes> * dotcu::cluster_blocks();
    Sum sum = 0;
#pragma unroll 1
    for (int w = threadIdx.x % step; w < end; w += step) sum += all[w].count * all[w].pivot;
    const Sum mean = dotcu::reduce_warp<step>(sum, dotcu::plus()) * share;
    Sums<Sum> sums = {0, mean, 0, 0, 0};
#pragma unroll 1
    for (int w = threadIdx.x % step; w < end; w += step) sums = sums + all[w].about(mean);
    return dotcu::reduce_warp<step>(sums, dotcu::plus());
}

// What the elements of a row need to know of it.
template <typename Sum>
struct Means {
    Sum mean, r, of_g, of_gy;
};

template <int lanes>
constexpr int threads_of = lanes <= dotcu::warp_size ? 256 : lanes;  // short rows share a block

// `blocks`: of a multiprocessor, for which registers must suffice. `whole`: see row_ring.
template <typename T, typename W, typename Sum, int width, int vectors, int lanes, int blocks,
          int stages, bool ahead, int whole, bool anywhere, bool given>
__global__ void __launch_bounds__(threads_of<lanes>, blocks)
    layer_norm_backward(const T* grad, const T* x, const W* weight, const Sum* of_rows, T* grad_x,
                        Sum* parts, long long rows, int n, Sum share, Sum eps) {
    constexpr int group = dotcu::row_group<lanes>, warps = dotcu::row_warps<lanes>;
    constexpr int rounds = given ? 0 : (ahead ? 2 : 1);
    extern __shared__ uint4 memory[];
    __shared__ Sums<Sum> of_warp[2][dotcu::max_cluster * warps], again[dotcu::max_cluster * warps];
    dotcu::launch_later();
    dotcu::cluster_arrive();
    dotcu::row_ring<T, width, vectors, lanes, stages, 2, whole, anywhere> ring(memory, x, rows, n);
    const T* const from[] = {grad, x};
    for (int slot = 0; slot < stages; ++slot) ring.fetch(ring.row(slot), slot, from);

    dotcu::vector<W, width> scale[vectors];
    Sum of_weight[vectors][width] = {}, of_bias[vectors][width] = {};
    ring.load(scale, weight);
    // Of the thread's vectors, the elements before the row, and those behind it in the `last` one.
    const int head = ring.head();
    int tail = 0, last = 0;
    Sum columns_of_group = -head;
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        const int count = ring.count_of(v);
        columns_of_group += count;
        if (anywhere && v >= whole && count > 0) tail = width - count, last = v;
    }
    columns_of_group = dotcu::reduce_warp<group>(columns_of_group, dotcu::plus());
    const Sum share_of_group = 1 / max(columns_of_group, Sum(1));

    const auto sums_of = [&](long long row, int slot) {
        const bool there = ring.is_there(row);
#pragma unroll 1
        for (int k = 0; k < head; ++k)
            ring.at(slot, 0, 0)[k] = ring.at(slot, 1, 0)[k] = static_cast<T>(0);
        Sum sum = 0;
#pragma unroll
        for (int v = 0; there && v < vectors; ++v) {
            const auto in = dotcu::widen<Sum>(ring.at(slot, 1, v));
            for (int k = 0; k < width; ++k) sum += in[k];
        }
        sum = dotcu::reduce_warp<group>(sum, dotcu::plus());
        Sum pivot = sum * share_of_group;
        pivot += (sum - pivot * columns_of_group) * share_of_group;
        Sums<Sum> sums = {columns_of_group, pivot, 0, 0, 0};
        if (head + tail > 0) {  // in place of what is not in the row, the pivot as a T
            const T near = static_cast<T>(pivot);
            const Sum off = Sum(near) - pivot;
            sums.squares = -((head + tail) * off * off);
#pragma unroll 1
            for (int k = 0; k < head; ++k) ring.at(slot, 1, 0)[k] = near;
#pragma unroll 1
            for (int k = width - tail; k < width; ++k) ring.at(slot, 1, last)[k] = near;
        }
#pragma unroll
        for (int v = 0; there && v < vectors; ++v) {
            const auto dy = dotcu::widen<Sum>(ring.at(slot, 0, v));
            const auto in = dotcu::widen<Sum>(ring.at(slot, 1, v));
            const auto by = dotcu::widen<Sum>(scale[v]);
            const Sum about = ring.count_of(v) > 0 ? pivot : 0;  // else zeros are in their place
            for (int k = 0; k < width; ++k) {
                const Sum g = dotcu::rounded_product(dy[k], by[k]), off = in[k] - about;
                sums = sums + Sums<Sum>{0, 0, off * off, g, g * off};
            }
        }
        return dotcu::reduce_warp<group>(sums, dotcu::plus());
    };
    const auto means_of = [&](long long row, const Sums<Sum>& mine, const Sums<Sum>* all) {
        const auto sums = join<lanes>(mine, all, share);
        const Sum r = rsqrt(sums.squares * share + eps);
        Means<Sum> means = {sums.pivot, r, sums.of_g * share, r * sums.of_gx * share};
        if (dotcu::any_of_row<lanes>(means.of_gy - means.of_gy != 0)) {  // overflow: first r
            Sums<Sum> part = {0, 0, 0, 0, 0};
#pragma unroll 1  // rarely runs: saves registers
            for (int j = 0; ring.is_there(row) && j < vectors * width; ++j) {
                const int i = ring.column + j / width * ring.stride + j % width;
                if (i >= n) break;
                if (i < 0) continue;
                const Sum y = (Sum(x[row * n + i]) - means.mean) * r;
                part.of_g += Sum(grad[row * n + i]) * Sum(weight[i]) * y;
            }
            part = dotcu::reduce_warp<group>(part, dotcu::plus());
            dotcu::share_row<lanes>(part, again);
            means.of_gy = join<lanes>(part, again, share).of_g * share;
        }
        return means;
    };
    const auto complete = [&](long long row, int slot, const Sums<Sum>& mine,
                              const Sums<Sum>* all) {
        Means<Sum> means;
        if constexpr (given)
            means = {of_rows[4 * row], of_rows[4 * row + 1], of_rows[4 * row + 2],
                     of_rows[4 * row + 3]};
        else
            means = means_of(row, mine, all);
        const bool there = ring.is_there(row);
#pragma unroll
        for (int v = 0; there && v < vectors; ++v) {
            dotcu::vector<Sum, width> result;
            const auto dy = dotcu::widen<Sum>(ring.at(slot, 0, v));
            const auto in = dotcu::widen<Sum>(ring.at(slot, 1, v));
            const auto by = dotcu::widen<Sum>(scale[v]);
            for (int k = 0; k < width; ++k) {
                const Sum y = (in[k] - means.mean) * means.r;
                of_weight[v][k] += dy[k] * y;
                of_bias[v][k] += dy[k];
                result[k] =
                    means.r * (dotcu::rounded_product(dy[k], by[k]) - means.of_g - y * means.of_gy);
            }
            ring.store(grad_x, row, v, dotcu::to<T>(result));
        }
    };
    dotcu::cluster_wait();
    ring.template each<rounds>(of_warp, sums_of, complete, from);
    ring.write(of_weight, parts);
    ring.write(of_bias, parts + gridDim.x * static_cast<long long>(n));
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
