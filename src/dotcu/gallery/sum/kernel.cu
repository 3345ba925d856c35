// sum: out[o, i] = x[o, 0, i] + x[o, 1, i] + ... + x[o, n - 1, i].
//
//     x: [outer, n, inner], contiguous; out: [outer, inner]
//
// Idea: a thread has a batch of 16-byte loads in flight before it adds the first. The order of
// additions is fixed: equal calls give equal bits. If inner = 1, lanes of a warp, or a block, add
// up a row. Otherwise a thread adds up neighbouring columns, and the block's rows of threads share
// the n. Too few blocks share each sum, gridDim.y of them, and a second launch adds it up.
//
// Cost: outer * n * inner additions, as many elements read: bound by memory.
#include <dotcu/grid.cuh>
#include <dotcu/row.cuh>

// Adds up vectors i (unless it is negative), i + step, ... below n; they begin `stride` apart.
template <int batch, typename Part, typename T, typename Sum, int lanes>
__device__ void add_up(dotcu::running_sum<Sum> (&sum)[lanes], const T* x, long long i, long long n,
                       long long step, long long stride) {
    for (; i < n; i += batch * step) {
        dotcu::vector<T, lanes> v[batch] = {};
#pragma unroll
        for (int k = 0; k < batch; ++k)
            if (i + k * step < n && (k > 0 || i >= 0))
                v[k] = dotcu::load<lanes>(x + (i + k * step) * stride);
        dotcu::vector<Part, lanes> value[batch];
        for (int k = 0; k < batch; ++k) value[k] = dotcu::widen<Part>(v[k]);
#pragma unroll
        for (int j = 0; j < lanes; ++j) {
            for (int half = batch / 2; half > 0; half /= 2)
                for (int k = 0; k < half; ++k) value[k][j] += value[k + half][j];
            sum[j].add(value[0][j]);
        }
    }
}

template <typename T, typename Part, typename Sum, typename Out, int team, int batch>
__global__ void __launch_bounds__(team <= dotcu::warp_size ? 512 : team)
    sum_rows(const T* x, Out* out, long long rows, long long n) {
    dotcu::launch_later();
    dotcu::wait_for_earlier();
    constexpr int width = dotcu::lanes_of_16_bytes<T>;
    const long long row = dotcu::thread_of_grid() / team, lane = threadIdx.x % team;
    dotcu::running_sum<Sum> sum[width];
    if (row < rows) {
        const T* from = x + row * n;
        const long long head = -reinterpret_cast<unsigned long long>(from) % 16 / sizeof(T);
        const long long vectors = (n - head) / width, body = vectors * width;
        // A division of 64 bits, where a row has several blocks.
        const long long share = gridDim.y == 1 ? vectors : (vectors + gridDim.y - 1) / gridDim.y;
        long long i = lane + blockIdx.y * team;  // of an edge: not in whole vectors
        T edge = i < n - body ? from[i < head ? i : i + body] : static_cast<T>(0);
        const long long begin = blockIdx.y * share, count = min(share, vectors - begin);
        const T* const part = from + head + begin * width;
        constexpr int line = team > dotcu::warp_size ? 128 : 16;  // warps of a block read it whole
        const int before = reinterpret_cast<unsigned long long>(part) % line / 16;
        add_up<batch, Part>(sum, part, lane - before, count, team, width);
        for (;; edge = from[i < head ? i : i + body]) {
            sum[0].add(static_cast<Sum>(edge));
            if ((i += gridDim.y * team) >= n - body) break;
        }
    }
    for (int j = 1; j < width; ++j) sum[0].add(sum[j].total());
    __shared__ Sum of_warp[dotcu::row_scratch];
    const Sum total = dotcu::reduce_row<team>(sum[0].total(), of_warp, dotcu::plus());
    if (row < rows && lane == 0) out[row * gridDim.y + blockIdx.y] = Out(total);
}

// `anywhere`: rows of x begin anywhere, and outer = 1. The rows of a block all begin alike, as
// gridDim.y is a multiple of `lanes`: it has whole words of them, and columns that begin there.
template <typename T, typename Part, typename Sum, typename Out, int lanes, int batch,
          bool anywhere>
__global__ void sum_columns(const T* x, Out* out, long long columns, long long n, long long inner) {
    dotcu::launch_later();
    dotcu::wait_for_earlier();
    extern __shared__ char memory[];
    Sum* mine = reinterpret_cast<Sum*>(memory) + threadIdx.y * blockDim.x + threadIdx.x;
    const int threads = blockDim.x * blockDim.y;
    const int before = anywhere ? dotcu::lane_of(x + blockIdx.y * inner) : 0;
    const long long c = dotcu::thread_of_grid() * lanes - before, o = c < inner ? 0 : c / inner;
    const long long step = 1ll * gridDim.y * blockDim.y;
    const long long first = anywhere ? blockIdx.y + 1ll * threadIdx.y * gridDim.y
                                     : 1ll * blockIdx.y * blockDim.y + threadIdx.y;
    dotcu::running_sum<Sum> sum[lanes];
    const bool part = anywhere && c + lanes > inner;  // the last row's word is not in x
    const long long end = part ? n - 1 : n;
    if (c < columns) add_up<batch, Part>(sum, x + o * (n - 1) * inner + c, first, end, step, inner);
    if (part && c < columns && end >= first && (end - first) % step == 0)
#pragma unroll
        for (int j = 0; j < lanes; ++j)
            if (c + j >= 0 && c + j < inner) sum[j].add(static_cast<Sum>(x[end * inner + c + j]));
    for (int j = 0; j < lanes; ++j) mine[j * threads] = sum[j].total();
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        for (int j = 0; j < lanes && threadIdx.y < half; ++j)
            mine[j * threads] += mine[j * threads + half * blockDim.x];
    }
    if (threadIdx.y > 0 || c >= columns) return;
    Out* to = out + (o * (gridDim.y - 1ll) + blockIdx.y) * inner + c;
    for (int j = 0; j < lanes; ++j)
        if (!anywhere || (c + j >= 0 && c + j < inner)) to[j] = Out(mine[j * threads]);
}
