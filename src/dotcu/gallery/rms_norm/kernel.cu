// rms_norm: out = x * rsqrt(mean(x^2) + eps) * weight, over rows of n elements.
//
//     adds = false    x, out: (rows, n); weight: (n)
//     adds = true     first sum = x + residual, rounded to T; then the same of sum
//
// Idea: read a row once and keep it in registers until its mean is known. `lanes` threads share a
// row: a part of a warp for short rows, a block for long ones, and a cluster, along the grid's y,
// for rows that no block can hold. Each thread has several vectors of 16 bytes in flight. A longer
// row goes through the registers chunk by chunk, from the last to the first: the second pass starts
// with the chunk that is still in registers. `exact`: the threads hold exactly the rows. For short
// rows weight is then loaded to shared memory together with the rows (`early`).
//
// Cost: 2 rows n elements moved (4 with a residual), weight from cache; 4 FLOPs an element.
// Source: Biao Zhang, Rico Sennrich, "Root Mean Square Layer Normalization", 2019.

#include <dotcu/row.cuh>
#include <dotcu/vector.cuh>

template <int lanes>
constexpr int threads_of = lanes <= dotcu::warp_size ? 128 : lanes;  // short rows share a block

// The threads that a multiprocessor should hold: as many as possible if short rows are then all in
// flight at once.
template <typename Sum, int lanes, bool exact, bool adds>
constexpr int resident =
    lanes <= dotcu::warp_size && exact && !adds && sizeof(Sum) == 4 ? 2048 : 1024;

template <typename T, typename W, typename Sum, int width, int vectors, int lanes, bool exact,
          bool adds>
__global__ void __launch_bounds__(threads_of<lanes>,
                                  resident<Sum, lanes, exact, adds> / threads_of<lanes>)
    rms_norm(const T* __restrict__ x, const T* __restrict__ residual, const W* __restrict__ weight,
             T* __restrict__ sum, T* __restrict__ out, long long rows, int n, Sum share, Sum eps) {
    constexpr int rows_of_block = threads_of<lanes> / lanes, stride = lanes * width;
    constexpr bool early = exact && vectors * lanes <= 128 && lanes <= dotcu::warp_size;
    __shared__ dotcu::vector<W, width> scales[early ? vectors * lanes : 1];
    __shared__ Sum shared[dotcu::row_scratch];
    const long long row = blockIdx.x * static_cast<long long>(rows_of_block) + threadIdx.x / lanes;
    const int end = row < rows ? n : 0;  // a row beyond the last has no columns
    const int chunk = gridDim.y * vectors * stride;
    int at = blockIdx.y * vectors * stride + threadIdx.x % lanes * width;
    if constexpr (lanes > dotcu::warp_size) dotcu::cluster_arrive();
    x += row * n, residual += row * n, sum += row * n, out += row * n;

    dotcu::vector<T, width> part[vectors], more[vectors];
    Sum squares = 0;
    if constexpr (!exact) at += (n - 1) / chunk * chunk;
    const int me = threadIdx.x % lanes;
    dotcu::vector<W, width> scale;
    if (early && threadIdx.x < vectors * lanes) {
        scale = dotcu::load<width>(weight + threadIdx.x * width);
    }
    for (;; at -= chunk) {
        dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int i) {
            part[v] = dotcu::load<width>(x + i);
            if constexpr (adds) more[v] = dotcu::load<width>(residual + i);
        });
        dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int i) {
            if constexpr (adds) {
                auto both = dotcu::widen<Sum>(part[v]);
                const auto second = dotcu::widen<Sum>(more[v]);
                for (int k = 0; k < width; ++k) both[k] += second[k];
                part[v] = dotcu::to<T>(both);
                dotcu::store(sum + i, part[v]);
            }
            const auto value = dotcu::widen<Sum>(part[v]);
            Sum some = 0;
            for (int k = 0; k < width; ++k) some += value[k] * value[k];
            squares += some;
            dotcu::repack(part[v]);
        });
        if (exact || at < chunk) break;
    }

    if (early && threadIdx.x < vectors * lanes) scales[threadIdx.x] = scale;
    if constexpr (early) __syncthreads();
    if constexpr (lanes > dotcu::warp_size) dotcu::cluster_wait();
    const Sum r = rsqrt(dotcu::reduce_row<lanes>(squares, shared, dotcu::plus()) * share +
                        eps);  // share: 1 / n
    while (true) {
        dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int i) {
            scale = early ? scales[early ? v * lanes + me : 0] : dotcu::load<width>(weight + i);
            const auto by = dotcu::widen<Sum>(scale);
            auto value = dotcu::widen<Sum>(part[v]);
            for (int k = 0; k < width; ++k) value[k] = value[k] * r * by[k];
            dotcu::store(out + i, dotcu::to<T>(value));
        });
        at += chunk;
        if (exact || at >= end) break;
        dotcu::each_vector<vectors, stride, exact>(
            at, end, [&](int v, int i) { part[v] = dotcu::load<width>((adds ? sum : x) + i); });
    }
}
