// layer_norm: out = (x - mean) * rsqrt(variance + eps) * weight + bias, over rows of n elements.
//
//     x, out: (rows, n); weight, bias: (n); variance = mean((x - mean)^2)
//
// Idea: that of rms_norm, with a second round. The row stays in registers, so that the squares are
// those of x - mean, and cost no second read. The sum of x - mean, which would be zero, tells what
// rounding took from the mean: a row far from zero loses no places. `lanes` threads share a row: a
// part of a warp, a block, or a cluster along the grid's y. A longer row goes through the registers
// chunk by chunk, forth, back and forth: each round begins with the chunk that the one before has
// ended with. `exact`: the threads hold just the rows, without rest.
//
// Cost: 2 rows n elements moved, weight and bias from cache; 7 FLOPs an element.
// Source: Jimmy Lei Ba, Jamie Ryan Kiros, Geoffrey E. Hinton, "Layer Normalization", 2016.

#include <dotcu/row.cuh>
#include <dotcu/vector.cuh>

template <int lanes>
constexpr int threads_of = lanes <= dotcu::warp_size ? 128 : lanes;  // short rows share a block

// Of x - mean: the sums of squares, and of it.
template <typename Sum>
struct Sums {
    Sum squares, offs;

    __device__ Sums operator+(Sums b) const { return {squares + b.squares, offs + b.offs}; }
};

template <typename Sum>
__device__ Sums<Sum> __shfl_xor_sync(unsigned lanes, Sums<Sum> a, int distance) {
    return {__shfl_xor_sync(lanes, a.squares, distance), __shfl_xor_sync(lanes, a.offs, distance)};
}

template <typename T, typename W, typename Sum, int width, int vectors, int lanes, bool exact>
__global__ void __launch_bounds__(threads_of<lanes>, 1024 / threads_of<lanes>)
    layer_norm(const T* __restrict__ x, const W* __restrict__ weight, const W* __restrict__ bias,
               T* __restrict__ out, long long rows, int n, Sum share, Sum eps) {
    constexpr int rows_of_block = threads_of<lanes> / lanes, stride = lanes * width;
    __shared__ Sum of_sum[dotcu::row_scratch];
    __shared__ Sums<Sum> of_sums[dotcu::row_scratch];
    const long long row = blockIdx.x * static_cast<long long>(rows_of_block) + threadIdx.x / lanes;
    const int end = row < rows ? n : 0;  // a row that is not there has no columns
    const int chunk = gridDim.y * vectors * stride;
    const int first = blockIdx.y * vectors * stride + threadIdx.x % lanes * width;
    int at = first;
    dotcu::cluster_arrive();
    x += row * n, out += row * n;

    dotcu::vector<T, width> part[vectors];
    const auto load = [&](int v, int i) { part[v] = dotcu::load<width>(x + i); };
    Sum sum = 0;
    Sums<Sum> sums = {0, 0};
    while (true) {
        dotcu::each_vector<vectors, stride, exact>(at, end, load);
        dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int) {
            for (int k = 0; k < width; ++k) sum += Sum(part[v][k]);
        });
        if (exact || at - first + chunk >= n) break;
        at += chunk;
    }
    dotcu::cluster_wait();
    const Sum mean = dotcu::reduce_row<lanes>(sum, of_sum, dotcu::plus()) * share;
    while (true) {
        dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int) {
            for (int k = 0; k < width; ++k) {
                const Sum off = Sum(part[v][k]) - mean;
                sums = sums + Sums<Sum>{off * off, off};
            }
        });
        if (exact || at == first) break;
        at -= chunk;
        dotcu::each_vector<vectors, stride, exact>(at, end, load);
    }
    sums = dotcu::reduce_row<lanes>(sums, of_sums, dotcu::plus());
    const Sum rest = sums.offs * share;  // mean + rest: the mean, to more places than Sum has
    const Sum r = rsqrt(sums.squares * share - rest * rest + eps);
    while (true) {
        dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int i) {
            const auto scale = dotcu::load<width>(weight + i), shift = dotcu::load<width>(bias + i);
            for (int k = 0; k < width; ++k) {
                const Sum value = (Sum(part[v][k]) - mean - rest) * r;
                part[v][k] = static_cast<T>(value * Sum(scale[k]) + Sum(shift[k]));
            }
            dotcu::store(out + i, part[v]);
        });
        at += chunk;
        if (exact || at >= end) break;
        dotcu::each_vector<vectors, stride, exact>(at, end, load);
    }
}
