// dotcu/row.cuh: rows that are shared by several threads.
//
//     dotcu::each_vector<vectors, stride, exact>(at, end, [&](int v, int i) { ... x + i ... });
//     sum = dotcu::reduce_row<lanes>(sum, scratch, dotcu::plus());
//
// A thread has `vectors` vectors of its row: the first at `at`, the next ones `stride` elements
// apart, so that neighbouring threads have neighbouring vectors. `lanes` threads share a row: a
// part of a warp, a block, or a cluster of blocks with as many threads each.
//
// A row whose length is no multiple of 16 bytes begins anywhere. It still has whole vectors at
// multiples of 16 bytes, and elements before and behind them, its edges:
//
//     const dotcu::row_split<way, width> split(n, out_row, in_row);
//     in = split.load(at < split.inner, in_row + split.first + at, 0, zero);
//     split.each_edge<threads>(thread, [&](int k, int i) { ... in_row[i] ... });
//
// Where a column belongs to one thread in all rows, as for sums over rows, a thread's vectors begin
// anywhere themselves. They are copied as words to shared memory (copy_words_later), read from
// there (between) and stored by whole words across lanes (store_across).
#pragma once

#include <dotcu/async.cuh>
#include <dotcu/cluster.cuh>
#include <dotcu/reduce.cuh>
#include <dotcu/vector.cuh>

namespace dotcu {

// Calls f(v, i) for each vector of a thread, at column i, except those from `end` on. `exact`: the
// vectors of the threads are exactly the row, so there are none.
template <int vectors, int stride, bool exact, typename F>
__device__ void each_vector(int at, int end, F f) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        if (exact || at + v * stride < end) f(v, at + v * stride);
    }
}

// The neighbouring threads of a warp that share a row.
template <int lanes>
constexpr int row_group = lanes < warp_size ? lanes : warp_size;

// The values of shared memory that reduce_row needs: one for each warp and each block.
constexpr int row_scratch = warp_size + max_cluster;

// Reduces the values of a row's threads; all of them get the result. Two consecutive reductions
// need scratch memory of their own. A kernel launched with clusters calls cluster_arrive() at its
// start and cluster_wait() before the first reduction.
template <int lanes, typename T, typename Op>
__device__ T reduce_row(T value, T* scratch, Op op) {
    if constexpr (lanes <= warp_size) {
        return reduce_warp<lanes>(value, op);
    } else {
        return reduce_cluster(reduce_block<lanes>(value, scratch, op), scratch + warp_size, op);
    }
}

// a * b, rounded before anything is added to it (not fused), so that the difference of two equal
// products is zero, as with the mean of a row of one element.
__device__ inline float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double rounded_product(double a, double b) { return __dmul_rn(a, b); }

// Returns `answer`, which is the same in all threads of a row. If rows share a warp, returns true
// if it is true for any of them, since the lanes of a warp reduce together.
template <int lanes>
__device__ bool any_of_row(bool answer) {
    if constexpr (lanes < warp_size) return __any_sync(all_lanes, answer);
    return answer;
}

// The number of a row's warps in one block.
template <int lanes>
constexpr int row_warps = lanes > warp_size ? lanes / warp_size : 1;

// The power of two from n on.
__device__ constexpr int power_from(int n) {
    int power = 1;
    while (power < n) power *= 2;
    return power;
}

// The lanes that together read the values of a row's warps.
template <int lanes>
constexpr int row_readers = power_from(row_warps<lanes>);

// Copies one value of each warp of a row to the shared memory of each of its blocks, where all of
// them are after meet_row. `all` has max_cluster * row_warps<lanes> entries; those of a block are
// adjacent. What a warp of the row still reads may not be copied to. A row of one warp has nothing
// to copy. Clusters as for reduce_row.
template <int lanes, typename T>
__device__ void publish_row(const T& of_warp, T* all) {
    if constexpr (lanes <= warp_size) return;
    const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    if (cluster_blocks() == 1) {
        if (lane == 0) all[warp] = of_warp;
    } else {
        all += cluster_rank() * row_warps<lanes> + warp;
        if (lane < cluster_blocks()) *shared_of(all, lane) = of_warp;
    }
}

// A barrier for the threads of a row.
template <int lanes>
__device__ void meet_row() {
    if constexpr (lanes <= warp_size) return;
    if (cluster_blocks() == 1)
        __syncthreads();
    else
        cluster_sync();
}

// Both of them. Two consecutive calls need an array each.
template <int lanes, typename T>
__device__ void share_row(const T& of_warp, T* all) {
    publish_row<lanes>(of_warp, all);
    meet_row<lanes>();
}

// The elements from a multiple of 16 bytes to an address.
template <typename T>
__device__ int lane_of(const T* from) {
    return static_cast<int>(reinterpret_cast<unsigned long long>(from) % 16 / sizeof(T));
}

// Returns the vector of 16 bytes that begins at element `by` of two words, and not at the second.
template <typename T, int width>
__device__ vector<T, width> between(const vector<T, width>& low, const vector<T, width>& high,
                                    int by) {
    unsigned words[8];
    memcpy(words, &low, 16);
    memcpy(words + 4, &high, 16);
    const unsigned bytes = by * sizeof(T);
#pragma unroll
    for (int k = 0; k < 6; ++k) words[k] = bytes & 8 ? words[k + 2] : words[k];
#pragma unroll
    for (int k = 0; k < 5; ++k) words[k] = bytes & 4 ? words[k + 1] : words[k];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        words[k] = __funnelshift_r(words[k], words[k + 1], bytes % 4 * 8);
    }
    vector<T, width> value;
    memcpy(&value, words, 16);
    return value;
}

// Starts to copy the word of 16 bytes at column i of a row of n elements; what is not in the row
// becomes zeros, without waiting for it in words that are.
template <typename T, int width, typename Index>
__device__ void copy_inside_later(vector<T, width>* to, const T* row, Index i, Index n) {
    if (i >= 0 && i + width <= n) return copy_later(to, row + i);
    vector<T, width> value{};
#pragma unroll
    for (int k = 0; k < width; ++k) {
        if (i + k >= 0 && i + k < n) value[k] = row[i + k];
    }
    *to = value;
}

// Loads the vector at column i of a row of n elements that begins anywhere, from two words if both
// are inside: for what comes from L1, as the weights of rows that begin anywhere.
template <int width, typename T>
__device__ vector<T, width> load_shifted(const T* row, int i, int n) {
    constexpr int most = lanes_of_16_bytes<T>;
    static_assert(width % most == 0, "words of 16 bytes");
    using V = vector<T, most>;
    const int by = lane_of(row + i);
    vector<T, width> value;
#pragma unroll
    for (int k = 0; k < width; k += most) {
        const int at = i + k - by;
        detail::words_of<V> bits;  // joined as words, as in load_if
        if (at >= 0 && at + 2 * most <= n) {
            bits = detail::to_words(between(load<most>(row + at), load<most>(row + at + most), by));
        } else {
            V part{};
            for (int j = 0; j < most; ++j) {
                if (i + k + j < n) part[j] = row[i + k + j];
            }
            bits = detail::to_words(part);
        }
        const V part = detail::from_words<V>(bits);
#pragma unroll
        for (int j = 0; j < most; ++j) value[k + j] = part[j];
    }
    return value;
}

// Starts to copy the word of 16 bytes that has a vector's first elements: the vector at column i of
// a row of n elements, 32 bytes or more. Each thread of a row calls it; the last of a row_group
// copies the next word too, behind its own: `to` has a gap behind each group. Zeros take the place
// of what is behind the row. `first`: nothing before the row can be read.
template <int lanes, typename T, int width>
__device__ void copy_words_later(vector<T, width>* to, const T* row, int i, int n, bool first) {
    const int by = lane_of(row);
    const auto copy = [&](vector<T, width>* there, int at) {
        if (at >= 0 || !first) {
            const int count = max(min(n - at, width), 0);
            return copy_part_later(there, row + (count ? at : width - by), count);
        }
        vector<T, width> value{};
#pragma unroll
        for (int k = 1; k < width; ++k) {
            if (k >= by) value[k] = row[k - by];
        }
        *there = value;
    };
    copy(to, i - by);
    if (threadIdx.x % row_group<lanes> == row_group<lanes> - 1) copy(to + 1, i - by + width);
}

// Returns the vector whose words are there, once the lanes of the warp have met.
template <typename T, int width>
__device__ vector<T, width> vector_of(const vector<T, width>* from, const T* row) {
    return between(from[0], from[1], lane_of(row));
}

// Stores by one instruction that the compiler cannot split. Else it merges a store with those of
// single elements beside it: four stores of 4 bytes for one of 16, and more registers.
template <typename T, int width>
__device__ void store_whole(T* to, const vector<T, width>& value) {
    using words = detail::words_of<vector<T, width>>;
    __stwb(reinterpret_cast<words*>(to), detail::to_words(value));
}

// Stores the vectors of a row's threads, by whole words that begin in the vector of the lane before
// and, at the ends of a row_group and of the row, element by element. `there` is shared memory, a
// place for each lane. The lanes of the warp call it together, and may not write there before they
// meet again. The vector is that at column i of a row of n elements.
template <int lanes, typename T, int width>
__device__ void store_across(T* row, int i, int n, const vector<T, width>& value,
                             vector<T, width>* there) {
    constexpr int group = row_group<lanes>;
    const int by = lane_of(row), lane = threadIdx.x % group, begin = i - by;
    *there = value;
    __syncwarp();
    if (by == 0 || lane > 0) {
        const auto word = by ? between(there[-1], value, width - by) : value;
        if (begin + width <= n) {
            store_whole(row + begin, word);
        } else {
#pragma unroll
            for (int k = 0; k < width; ++k) {
                if (begin + k < n) row[begin + k] = word[k];
            }
        }
    }
    if (by == 0) return;
#pragma unroll
    for (int k = lane; k < width; k += group) {  // those of the first vector, then of the last one
        const int other = k < width - by ? 0 : group - 1, column = i + (other - lane) * width + k;
        if (column < n) row[column] = there[other - lane][k];
    }
}

// Stores the vector at column i of a row of n elements. `anywhere`: of one that is not all in the
// row, at its ends, only what is.
template <bool anywhere, typename T, int width>
__device__ void store_inside(T* row, int i, int n, const vector<T, width>& value) {
    const bool whole = !anywhere || (i >= 0 && i + width <= n);
    if (whole) store_whole(row + i, value);
#pragma unroll
    for (int k = 0; k < width; ++k)
        if (!whole && i + k >= 0 && i + k < n) row[i + k] = value[k];
}

// Rows that a block loops over, `gridDim.x` blocks apart, while the next ones of each input are
// copied to a ring of `stages` rows in shared memory, from which a thread reads what it copied:
//
//     row_ring<T, width, vectors, lanes, stages, inputs, whole, anywhere> ring(memory, x, rows, n);
//     for (int slot = 0; slot < stages; ++slot) ring.fetch(ring.row(slot), slot, from);
//     ring.each<rounds>(of_warp, sums_of, complete, from);
//     ring.write(total, parts);
//
// Rows of at most a warp share a block of 256 threads. `whole`: as many of a thread's first vectors
// are in the row in all threads; if all are, no row of a block is missing either. `anywhere`: rows
// begin anywhere, but so many rows apart that all of a thread's lie alike; the elements of its
// vectors that are not in the row are then the end of the row before, or zeros.
template <typename T, int width, int vectors, int lanes, int stages, int inputs, int whole,
          bool anywhere>
struct row_ring {
    static constexpr int threads = lanes <= warp_size ? 256 : lanes, stride = lanes * width;
    static constexpr int columns = vectors * stride;
    using V = vector<T, width>;

    V (*slots)[inputs][vectors][threads];
    const T* x;
    long long rows, first, step;
    int n, column;  // the first column of the thread, before the row by up to a vector

    __device__ row_ring(uint4* memory, const T* x, long long rows, int n)
        : slots(reinterpret_cast<V (*)[inputs][vectors][threads]>(memory)), x(x), rows(rows), n(n) {
        step = gridDim.x * static_cast<long long>(threads / lanes);
        first = blockIdx.x * static_cast<long long>(threads / lanes);
        column = blockIdx.y * columns + threadIdx.x % lanes * width - before(row(0));
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            for (int slot = 0; count_of(v) == 0 && slot < stages; ++slot)
                for (int input = 0; input < inputs; ++input) at(slot, input, v) = V{};
        }
    }

    // The thread's row, of those that its block has one after the other.
    __device__ long long row(int turn) const { return first + threadIdx.x / lanes + turn * step; }
    __device__ bool is_there(long long row) const {
        return threads == lanes || whole == vectors || row < rows;
    }
    // The elements from a multiple of 16 bytes to a row.
    __device__ int before(long long row) const { return anywhere ? lane_of(x + row * n) : 0; }
    // Of a vector's elements, those up to the row's end, and those of the first before the row.
    __device__ int count_of(int v) const {
        return v < whole ? width : max(min(n - column - v * stride, width), 0);
    }
    __device__ int head() const { return anywhere ? max(-column, 0) : 0; }
    __device__ V& at(int slot, int input, int v) { return slots[slot][input][v][threadIdx.x]; }

    // Starts to copy a row of each input, if there is one.
    __device__ void fetch(long long row, int slot, const T* const* from) {
        const bool last = row == rows - 1;
        if (row < rows) {
#pragma unroll
            for (int v = 0; v < vectors; ++v) {
#pragma unroll
                for (int input = 0; input < inputs; ++input)
                    copy(&at(slot, input, v), from[input] + (row * n + column), v, last);
            }
        }
        commit_copies();
    }
    __device__ void copy(V* to, const T* of_row, int v, bool last) const {
        const int count = count_of(v);
        if (count == 0) return;
        if constexpr (anywhere) {
            if (v >= whole) return copy_part_later(to, of_row + v * stride, count, last);
        }
        copy_later(to, of_row + v * stride);
    }

    // Loads the thread's columns of a row that comes from cache; zeros for those that are not in
    // it.
    template <typename W>
    __device__ void load(vector<W, width> (&to)[vectors], const W* from) const {
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            const int i = column + v * stride;
            if constexpr (anywhere) {
                for (int k = 0; k < width; ++k)
                    to[v][k] = i + k < 0 || i + k >= n ? static_cast<W>(0) : from[i + k];
            } else {
                to[v] = count_of(v) > 0 ? dotcu::load<width>(from + i) : vector<W, width>{};
            }
        }
    }
    __device__ void store(T* to, long long row, int v, const V& value) const {
        const int i = column + v * stride;
        if (anywhere && (v == 0 || v >= whole))
            store_inside<true>(to + row * n, i, n, value);
        else if (count_of(v) > 0)
            store_whole(to + row * n + i, value);
    }

    // Calls complete(row, slot, sums, all) for each row, with the sums_of(row, slot) of the warp
    // and, in `all`, of the row's warps. `rounds`: 0 without sums; 1, each row is summed up when
    // the last is complete; 2, before, so that no warp waits for the sums of another.
    template <int rounds, typename Sums, int warps, typename Of, typename Complete>
    __device__ void each(Sums (&all)[2][warps], Of sums_of, Complete complete,
                         const T* const* from) {
        constexpr bool ahead = rounds == 2;
        Sums mine = {};
        int slot = 0, turn = 0;
        if (ahead && first < rows) {
            wait_for_copies<stages - 1>();
            mine = sums_of(row(0), 0);
            publish_row<lanes>(mine, all[0]);
            meet_row<lanes>();
        }
        long long row = this->row(0);
        for (long long begin = first; begin < rows; begin += step, row += step) {
            const int next = slot + 1 == stages ? 0 : slot + 1;
            wait_for_copies<stages - (ahead ? 2 : 1)>();
            Sums later = mine;
            if constexpr (rounds == 1) {
                mine = sums_of(row, slot);
                publish_row<lanes>(mine, all[turn]);
                meet_row<lanes>();
            } else if (ahead && begin + step < rows) {
                later = sums_of(row + step, next);
                publish_row<lanes>(later, all[turn ^ 1]);
            }
            complete(row, slot, mine, all[turn]);
            fetch(row + stages * step, slot, from);
            if (ahead) meet_row<lanes>();
            mine = later, slot = next, turn ^= 1;
        }
        wait_for_copies<0>();
    }

    // Writes the block's part of the sums over rows, to a row of its own: those of the rows that it
    // had side by side are added up in the ring's memory, which has room for them.
    template <typename Sum>
    __device__ void write(const Sum (&total)[vectors][width], Sum* parts) {
        auto of_row = reinterpret_cast<Sum(*)[columns]>(slots);
        const int me = threadIdx.x;
        __syncthreads();
        for (int v = 0; v < vectors; ++v) {
            for (int k = 0; k < width; ++k)
                of_row[me / lanes][v * stride + me % lanes * width + k] = total[v][k];
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
};

// How rows lie: they start at multiples of their vectors; or anywhere, but all tensors alike; or
// anywhere, in inputs otherwise than in the result.
enum row_way { aligned, alike, apart };

// The vectors and edges of a row of n elements. `width`: elements of 16 bytes. The vectors are
// those of the result. Where an input lies otherwise (`apart`), each of its vectors comes from two
// words of 16 bytes, shifted; vectors of which one word would not be in the row are edges.
template <row_way way, int width, int inputs = 1, typename Index = int>
struct row_split {
    // The edges of a row at most, and how many a thread has if `threads` share a row.
    static constexpr int most_edges = way == aligned ? 0 : way == alike ? 2 * width : 4 * width;
    template <int threads>
    static constexpr int edges_of_thread = (most_edges + threads - 1) / threads;

    Index n, first = 0, inner;  // the column of the first vector, and the elements of all vectors
    int off[inputs] = {};       // of an input: the elements from a multiple of 16 bytes to a vector

    template <typename T, typename... In>
    __device__ row_split(Index n, const T* result, const In*... in) : n(n), inner(n) {
        static_assert(way == aligned || (width * sizeof(T) == 16 && sizeof...(In) == inputs),
                      "vectors have 16 bytes, and each input is named");
        if constexpr (way == aligned) return;
        first = (width - lane_of(result)) % width;
        Index end = n;
        if constexpr (way == apart) {
            const int of_input[] = {(lane_of(in) + first) % width...};
            int before = 0, behind = 0;
            for (int i = 0; i < inputs; ++i) {
                off[i] = of_input[i];
                before = max(before, off[i]);
                if (off[i]) behind = max(behind, width - off[i]);
            }
            if (first < before) first += width;
            end = n - behind;
        }
        first = min(first, n);
        inner = max(end - first, Index(0)) / width * width;
    }

    // Returns a vector of an input, by the address of its first element; of `other` if not `there`.
    // Input -1 lies as the result does.
    template <typename T>
    __device__ vector<T, width> load(bool there, const T* from, int input, T other) const {
        if constexpr (way != apart) return load_if<width>(there, from, other);
        const int by = input < 0 ? 0 : off[input];
        const auto low = load_if<width>(there, from - by, other);
        const auto high = load_if<width>(there && by, from - by + width, other);
        return between(low, high, by);
    }

    // Calls f(k, i) for each edge of one of `threads` threads that share the row, at column i.
    template <int threads, typename F>
    __device__ void each_edge(int thread, F f) const {
#pragma unroll
        for (int k = 0; k < edges_of_thread<threads>; ++k) {
            const int edge = thread + k * threads;
            const Index i = edge < first ? edge : edge + inner;
            if (i < n) f(k, i);
        }
    }
};

}  // namespace dotcu
