// rms_norm_backward: the gradients of rms_norm by x and by weight.
//
//     y = x * r, g = grad * weight                        r = rsqrt(mean(x^2) + eps), of each row
//     grad_x = r * (g - y * mean(g * y)) [+ added]        means over the n columns
//     grad_weight = sum over all rows of grad * y
//
// Idea: as few blocks as saturate the memory, each looping over many rows. `lanes` threads share a
// row, and each accumulates its columns' part of grad_weight in registers. While a row is computed,
// the next ones are copied into a ring in shared memory; each thread reads only what it copied, so
// a row costs one barrier, that of its sums; or it sums up the next row before it completes this
// one (`ahead`), so that no warp waits for another's sums. At the end every block writes its part
// of grad_weight, and a second kernel, already started, adds up the parts in a fixed order. Rows
// that no block holds are spread over the grid's y: a cluster adds up the sums of its blocks;
// without clusters, row_sums has computed them before (`given`). Rows may begin anywhere
// (`anywhere`) if all tensors do alike: a thread's rows are so many apart that all lie alike, so
// its vectors are whole words.
//
// Cost: 3 rows n elements moved (4 with added), 3 more where sums are given; 12 FLOPs an element.
// Source: Tri Dao, QuACK, 2025, for clusters; PTX ISA, cp.async.

#include <dotcu/async.cuh>
#include <dotcu/grid.cuh>
#include <dotcu/row.cuh>
#include <dotcu/vector.cuh>

// Of a row: the sums of x^2 and of g * x.
template <typename Sum>
struct Sums {
    Sum squares, dot;

    __device__ Sums operator+(Sums b) const { return {squares + b.squares, dot + b.dot}; }
};

template <typename Sum>
__device__ Sums<Sum> __shfl_xor_sync(unsigned lanes, Sums<Sum> a, int distance) {
    return {__shfl_xor_sync(lanes, a.squares, distance), __shfl_xor_sync(lanes, a.dot, distance)};
}

// Returns the sums of a row, from those of its warps.
template <int lanes, typename Sum>
__device__ Sums<Sum> join(const Sums<Sum>& mine, const Sums<Sum>* all) {
    if constexpr (lanes <= dotcu::warp_size) return mine;
    constexpr int step = dotcu::row_readers<lanes>;
    const int end = dotcu::row_warps<lanes> * dotcu::cluster_blocks();
    Sums<Sum> sums = {0, 0};
#pragma unroll 1
    for (int w = threadIdx.x % step; w < end; w += step) sums = sums + all[w];
    return dotcu::reduce_warp<step>(sums, dotcu::plus());
}

// What the elements of a row need to know of it.
template <typename Sum>
struct Means {
    Sum r, of_gy;
};

template <int lanes>
constexpr int threads_of = lanes <= dotcu::warp_size ? 256 : lanes;  // short rows share a block

// `blocks`: of a multiprocessor, for which registers must suffice. `whole`: see row_ring.
template <typename T, typename W, typename Sum, int width, int vectors, int lanes, int blocks,
          int stages, bool ahead, int whole, bool anywhere, bool adds, bool given>
__global__ void __launch_bounds__(threads_of<lanes>, blocks)
    rms_norm_backward(const T* grad, const T* x, const W* weight, const T* added,
                      const Sum* of_rows, T* grad_x, Sum* parts, long long rows, int n, Sum share,
                      Sum eps) {
    constexpr int group = dotcu::row_group<lanes>, warps = dotcu::row_warps<lanes>;
    constexpr int inputs = adds ? 3 : 2, rounds = given ? 0 : (ahead ? 2 : 1);
    extern __shared__ uint4 memory[];
    __shared__ Sums<Sum> of_warp[2][dotcu::max_cluster * warps], again[dotcu::max_cluster * warps];
    dotcu::launch_later();
    dotcu::cluster_arrive();
    dotcu::row_ring<T, width, vectors, lanes, stages, inputs, whole, anywhere> ring(memory, x, rows,
                                                                                    n);
    const T* const from[] = {grad, x, added};
    for (int slot = 0; slot < stages; ++slot) ring.fetch(ring.row(slot), slot, from);

    dotcu::vector<W, width> scale[vectors];
    Sum total[vectors][width] = {};
    ring.load(scale, weight);
    const int head = ring.head();
    const auto sums_of = [&](long long row, int slot) {
#pragma unroll 1
        for (int k = 0; k < head; ++k)  // the end of the row before
            ring.at(slot, 0, 0)[k] = ring.at(slot, 1, 0)[k] = static_cast<T>(0);
        Sums<Sum> sums = {0, 0};
        const bool there = ring.is_there(row);
#pragma unroll
        for (int v = 0; there && v < vectors; ++v) {
            const auto dy = dotcu::widen<Sum>(ring.at(slot, 0, v));
            const auto in = dotcu::widen<Sum>(ring.at(slot, 1, v));
            const auto by = dotcu::widen<Sum>(scale[v]);
            Sums<Sum> some = {0, 0};
            for (int k = 0; k < width; ++k)
                some =
                    some + Sums<Sum>{in[k] * in[k], dotcu::rounded_product(dy[k], by[k]) * in[k]};
            sums = sums + some;
        }
        return dotcu::reduce_warp<group>(sums, dotcu::plus());
    };
    const auto means_of = [&](long long row, const Sums<Sum>& mine, const Sums<Sum>* all) {
        const auto sums = join<lanes>(mine, all);
        const Sum r = rsqrt(sums.squares * share + eps);
        Means<Sum> means = {r, r * sums.dot * share};
        if (dotcu::any_of_row<lanes>(means.of_gy - means.of_gy != 0)) {  // overflow: first r
            Sums<Sum> part = {0, 0};
#pragma unroll 1  // rarely runs: saves registers
            for (int j = 0; ring.is_there(row) && j < vectors * width; ++j) {
                const int i = ring.column + j / width * ring.stride + j % width;
                if (i >= n) break;
                if (i < 0) continue;
                const Sum y = Sum(x[row * n + i]) * r;
                part.dot += Sum(grad[row * n + i]) * Sum(weight[i]) * y;
            }
            part = dotcu::reduce_warp<group>(part, dotcu::plus());
            dotcu::share_row<lanes>(part, again);
            means.of_gy = join<lanes>(part, again).dot * share;
        }
        return means;
    };
    const auto complete = [&](long long row, int slot, const Sums<Sum>& mine,
                              const Sums<Sum>* all) {
        Means<Sum> means;
        if constexpr (given)
            means = {of_rows[2 * row], of_rows[2 * row + 1]};
        else
            means = means_of(row, mine, all);
        const bool there = ring.is_there(row);
#pragma unroll
        for (int v = 0; there && v < vectors; ++v) {
            dotcu::vector<Sum, width> result;
            const auto dy = dotcu::widen<Sum>(ring.at(slot, 0, v));
            const auto in = dotcu::widen<Sum>(ring.at(slot, 1, v));
            const auto by = dotcu::widen<Sum>(scale[v]);
            dotcu::vector<T, width> more;
            if constexpr (adds) more = ring.at(slot, 2, v);
            for (int k = 0; k < width; ++k) {
                const Sum y = in[k] * means.r;
                total[v][k] += dy[k] * y;
                result[k] = means.r * (dotcu::rounded_product(dy[k], by[k]) - y * means.of_gy);
                if constexpr (adds) result[k] += Sum(more[k]);
            }
            ring.store(grad_x, row, v, dotcu::to<T>(result));
        }
    };
    dotcu::cluster_wait();
    ring.template each<rounds>(of_warp, sums_of, complete, from);
    ring.write(total, parts);
}

// r and the mean of g * y of each row, one block per row: for rows that no cluster holds.
template <typename T, typename W, typename Sum, int width, int threads>
__global__ void __launch_bounds__(threads)
    row_sums(const T* grad, const T* x, const W* weight, Sum* of_rows, int n, Sum share, Sum eps) {
    __shared__ Sum of_warp[2][dotcu::warp_size];
    const long long row = blockIdx.x;
    Sum squares = 0, dot = 0;
    for (int i = threadIdx.x * width; i < n; i += threads * width) {
        const auto in = dotcu::load<width>(x + row * n + i);
        for (int k = 0; k < width; ++k) squares += Sum(in[k]) * Sum(in[k]);
    }
    squares = dotcu::reduce_block<threads>(squares, of_warp[0], dotcu::plus());
    const Sum r = rsqrt(squares * share + eps);
    for (int i = threadIdx.x * width; i < n; i += threads * width) {
        const auto dy = dotcu::load<width>(grad + row * n + i);
        const auto in = dotcu::load<width>(x + row * n + i);
        const auto scale = dotcu::load<width>(weight + i);
        for (int k = 0; k < width; ++k) dot += Sum(dy[k]) * Sum(scale[k]) * (Sum(in[k]) * r);
    }
    dot = dotcu::reduce_block<threads>(dot, of_warp[1], dotcu::plus());
    if (threadIdx.x == 0) of_rows[2 * row] = r, of_rows[2 * row + 1] = dot * share;
}

// grad_weight[j] = the sum of parts[i][j] over i: a block adds up `columns` columns.
template <typename W, typename Sum, int columns, int threads>
__global__ void __launch_bounds__(threads)
    sum_parts(const Sum* parts, W* grad_weight, long long count, int n) {
    constexpr int side_by_side = threads / columns;
    __shared__ Sum of_part[side_by_side][columns + 1];  // columns begin in different banks
    const int j = threadIdx.x % columns, i = threadIdx.x / columns;
    const long long column = blockIdx.x * static_cast<long long>(columns) + j;
    dotcu::wait_for_earlier();
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
    if (lane == 0 && to < n) grad_weight[to] = static_cast<W>(sum);
}
