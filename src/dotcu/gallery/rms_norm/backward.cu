// rms_norm_backward: the gradients of rms_norm by x and by weight.
//
//     y = x * r, g = grad * weight                        r = rsqrt(mean(x^2) + eps), of each row
//     grad_x = r * (g - y * mean(g * y)) [+ added]        means over the n columns
//     grad_weight = sum over all rows of grad * y
//
// Idea: as few blocks as saturate the memory, each looping over many rows. `lanes` threads share a
// row, and each accumulates its columns' part of grad_weight in registers. While a row is computed,
// the next ones are copied into a ring in shared memory; each thread reads only what it copied, so
// a row costs one barrier, that of its sums. At the end every block writes its part of grad_weight,
// and a second kernel, already started, adds up the parts in a fixed order. Rows that no block
// holds are spread over the grid's y: a cluster adds up the sums of its blocks; without clusters,
// row_sums has computed them before (`given`). Rows may begin anywhere (`anywhere`) if all tensors
// do alike: a thread's rows are so many apart that all lie alike, so its vectors are whole words.
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

template <int lanes>
constexpr int threads_of = lanes <= dotcu::warp_size ? 256 : lanes;  // short rows share a block

template <typename T, typename W, typename Sum, int width, int vectors, int lanes, int stages,
          bool exact, bool anywhere, bool adds, bool given>
__global__ void __launch_bounds__(threads_of<lanes>, lanes > 512 ? 1 : 512 / threads_of<lanes>)
    rms_norm_backward(const T* grad, const T* x, const W* weight, const T* added,
                      const Sum* of_rows, T* grad_x, Sum* parts, long long rows, int n, Sum share,
                      Sum eps) {
    constexpr int threads = threads_of<lanes>, inputs = adds ? 3 : 2;
    constexpr int stride = lanes * width, columns = vectors * stride;
    using V = dotcu::vector<T, width>;
    extern __shared__ uint4 memory[];
    auto ring = reinterpret_cast<V(*)[inputs][vectors][threads]>(memory);
    __shared__ Sums<Sum> shared[2][dotcu::row_scratch];
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
                if constexpr (adds) copy(&ring[slot][2][v][me], added + row * n, i);
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
    Sum total[vectors][width] = {};
    dotcu::each_vector<vectors, stride, exact>(column, n, [&](int v, int i) {
        if constexpr (anywhere)
            for (int k = 0; k < width; ++k)
                scale[v][k] = i + k < 0 || i + k >= n ? static_cast<W>(0) : weight[i + k];
        else
            scale[v] = dotcu::load<width>(weight + i);
    });
    int slot = 0, turn = 0;
    dotcu::cluster_wait();
    for (long long begin = first; begin < rows; begin += step) {
        const long long row = begin + me / lanes;
        const int end = row < rows ? n : -width;  // before any column
        dotcu::wait_for_copies<stages - 1>();
        Sum r, mean;  // of g * y
        if constexpr (given) {
            r = of_rows[2 * row], mean = of_rows[2 * row + 1];
        } else {
            Sums<Sum> sums = {0, 0};
            dotcu::each_vector<vectors, stride, exact>(column, end, [&](int v, int i) {
                const auto dy = dotcu::widen<Sum>(fetched(slot, 0, v));
                const auto in = dotcu::widen<Sum>(fetched(slot, 1, v));
                const auto by = dotcu::widen<Sum>(scale[v]);
                Sums<Sum> some = {0, 0};
                for (int k = 0; k < width; ++k) {
                    some = some +
                           Sums<Sum>{in[k] * in[k], dotcu::rounded_product(dy[k], by[k]) * in[k]};
                }
                sums = sums + some;
            });
            sums = dotcu::reduce_row<lanes>(sums, shared[turn ^= 1], dotcu::plus());
            r = rsqrt(sums.squares * share + eps);
            mean = r * sums.dot * share;
            if (dotcu::any_of_row<lanes>(mean - mean != 0)) {  // overflow: scale by r first
                Sum of_gy = 0;
#pragma unroll 1  // rarely runs: saves registers
                for (int j = 0; j < vectors * width; ++j) {
                    const int v = j / width, k = j % width, i = column + v * stride + k;
                    if (i >= end) break;
                    if (i < 0) continue;
                    const Sum y = Sum(x[row * n + i]) * r;
                    of_gy += Sum(grad[row * n + i]) * Sum(weight[i]) * y;
                }
                Sum* scratch = &shared[turn ^= 1][0].squares;
                mean = dotcu::reduce_row<lanes>(of_gy, scratch, dotcu::plus()) * share;
            }
        }
        dotcu::each_vector<vectors, stride, exact>(column, end, [&](int v, int i) {
            dotcu::vector<Sum, width> result;
            const auto dy = dotcu::widen<Sum>(fetched(slot, 0, v));
            const auto in = dotcu::widen<Sum>(fetched(slot, 1, v));
            const auto by = dotcu::widen<Sum>(scale[v]);
            V more;
            if constexpr (adds) more = fetched(slot, 2, v);
            for (int k = 0; k < width; ++k) {
                const Sum y = in[k] * r;
                total[v][k] += dy[k] * y;
                result[k] = r * (dotcu::rounded_product(dy[k], by[k]) - y * mean);
                if constexpr (adds) result[k] += Sum(more[k]);
            }
            dotcu::store_inside<anywhere>(grad_x + row * n, i, n, dotcu::to<T>(result));
        });
        fetch(row + stages * step, slot);
        slot = slot + 1 == stages ? 0 : slot + 1;
    }

    // The sums of the rows that a block computed side by side, in the ring's memory.
    dotcu::wait_for_copies<0>();
    __syncthreads();
    auto of_row = reinterpret_cast<Sum(*)[columns]>(memory);
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
        parts[blockIdx.x * static_cast<long long>(n) + c] = sum;
    }
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
