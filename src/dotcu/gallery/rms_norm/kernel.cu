// rms_norm: out = x * rsqrt(mean(x^2) + eps) * weight, over rows of n elements.
//
//     adds = false    x, out: (rows, n); weight: (n)
//     adds = true     first sum = x + residual, rounded to T; then the same of sum
//
// Idea: read a row once and keep it in registers until its mean is known. `lanes` threads share a
// row: a part of a warp for short rows, a block for long ones, and a cluster, along the grid's y,
// for rows that no block can hold. Each thread has several vectors of 16 bytes on their way. A
// longer row goes through the registers chunk by chunk, the last one first: the chunk that is there
// when the mean is known is where the way back begins. `exact`: the threads hold just the rows.
//
// Cost: 2 rows n elements moved (4 with a residual), weight from cache; 4 FLOPs an element.
// Source: Biao Zhang, Rico Sennrich, "Root Mean Square Layer Normalization", 2019.

#include <dotcu/row.cuh>
#include <dotcu/vector.cuh>

template <int lanes>
constexpr int threads_of = lanes <= dotcu::warp_size ? 128 : lanes;  // short rows share a block

template <typename T, typename W, typename Sum, int width, int vectors, int lanes, bool exact,
          bool adds>
__global__ void __launch_bounds__(threads_of<lanes>, 1024 / threads_of<lanes>)
    rms_norm(const T* __restrict__ x, const T* __restrict__ residual, const W* __restrict__ weight,
             T* __restrict__ sum, T* __restrict__ out, long long rows, int n, Sum share, Sum eps) {
    constexpr int rows_of_block = threads_of<lanes> / lanes, stride = lanes * width;
    __shared__ Sum shared[dotcu::row_scratch];
    const long long row = blockIdx.x * static_cast<long long>(rows_of_block) + threadIdx.x / lanes;
    const int end = row < rows ? n : 0;  // a row that is not there has no columns
    const int chunk = gridDim.y * vectors * stride;
    int at = blockIdx.y * vectors * stride + threadIdx.x % lanes * width;
    dotcu::cluster_arrive();
    x += row * n, residual += row * n, sum += row * n, out += row * n;

    dotcu::vector<T, width> part[vectors], more[vectors];
    Sum squares = 0;
    if constexpr (!exact) at += (n - 1) / chunk * chunk;
    for (;; at -= chunk) {
        dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int i) {
            part[v] = dotcu::load<width>(x + i);
            if constexpr (adds) more[v] = dotcu::load<width>(residual + i);
        });
        dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int i) {
            for (int k = 0; k < width; ++k) {
                if constexpr (adds) part[v][k] = static_cast<T>(Sum(part[v][k]) + Sum(more[v][k]));
                squares += Sum(part[v][k]) * Sum(part[v][k]);
            }
            if constexpr (adds) dotcu::store(sum + i, part[v]);
        });
        if (exact || at < chunk) break;
    }

    dotcu::cluster_wait();
    const Sum r = rsqrt(dotcu::reduce_row<lanes>(squares, shared, dotcu::plus()) * share +
                        eps);  // share: 1 / n
    while (true) {
        dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int i) {
            const auto scale = dotcu::load<width>(weight + i);
            for (int k = 0; k < width; ++k) {
                part[v][k] = static_cast<T>(Sum(part[v][k]) * r * Sum(scale[k]));
            }
            dotcu::store(out + i, part[v]);
        });
        at += chunk;
        if (exact || at >= end) break;
        dotcu::each_vector<vectors, stride, exact>(
            at, end, [&](int v, int i) { part[v] = dotcu::load<width>((adds ? sum : x) + i); });
    }
}
