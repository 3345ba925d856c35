// What a GPU can do at best: memory that streams, and arithmetic in registers.
//
//     stream_read     sums[w] = the sum of what warp w read      reads x
//     stream_write    out[i]  = some_value(i)                    writes out
//     stream_copy     out[i]  = x[i]                             reads x, writes out
//     stream_add      out[i]  = a[i] + b[i]                      reads a and b, writes out
//     multiply_add    out[t]  = the sum of kChains values, each v <- v * a + b, so many times
//
// Memory: a block moves tiles of kThreads * kLoads vectors of 16 bytes, those at blockIdx.x,
// blockIdx.x + gridDim.x and so on, and all of them `passes` times. A thread has kLoads loads on
// their way before it uses the first, which is what it takes to keep the memory busy. There are
// no guards: the number of tiles is given, and no element is left over.
//
// With kStream nothing is to stay in the caches (ld.cs, st.cs); without it, all is to stay in L2
// and nothing in L1 (ld.cg, st.cg), so that passes over few bytes measure L2.
//
// Cost: 16 * kThreads * kLoads * tiles * passes bytes for each array; 2 * kChains * rounds
// operations for each thread of multiply_add.
// Source: PTX ISA, "Cache Operators", for what cs and cg mean.

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kChains = 8;
constexpr unsigned kAllLanes = 0xffffffff;

template <bool kStream>
__device__ float4 load(const float4* from) {
    if constexpr (kStream) return __ldcs(from);
    return __ldcg(from);
}

template <bool kStream>
__device__ void store(float4* to, float4 value) {
    if constexpr (kStream) {
        __stcs(to, value);
    } else {
        __stcg(to, value);
    }
}

// A float from 1 to 2 with bits that change from place to place: what is written decides how much
// power it takes. The factor is 2^32 over the golden ratio, so neighbours get unlike bits.
__device__ float some_float(unsigned place) {
    return __uint_as_float(0x3f800000u | (place * 2654435769u >> 9));
}

__device__ float4 some_value(unsigned vector) {
    const unsigned place = 4 * vector;
    return make_float4(some_float(place), some_float(place + 1), some_float(place + 2),
                       some_float(place + 3));
}

// Where this thread's first vector of a tile lies; the next ones follow at steps of kThreads.
template <int kLoads>
__device__ long long first_of(long long tile) {
    return tile * (kThreads * kLoads) + threadIdx.x;
}

template <int kLoads, bool kStream>
__global__ void __launch_bounds__(kThreads)
    stream_read(const float4* x, float* sums, long long tiles, int passes) {
    float sum = 0;
    for (int pass = 0; pass < passes; ++pass) {
        for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const float4* from = x + first_of<kLoads>(tile);
            float4 value[kLoads];
#pragma unroll
            for (int k = 0; k < kLoads; ++k) value[k] = load<kStream>(from + k * kThreads);
#pragma unroll
            for (int k = 0; k < kLoads; ++k) {
                sum += (value[k].x + value[k].y) + (value[k].z + value[k].w);
            }
        }
    }
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        sum += __shfl_down_sync(kAllLanes, sum, distance);
    }
    if (threadIdx.x % kWarp == 0) {
        sums[blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp] = sum;
    }
}

template <int kLoads, bool kStream>
__global__ void __launch_bounds__(kThreads) stream_write(float4* out, long long tiles, int passes) {
    for (int pass = 0; pass < passes; ++pass) {
        for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const long long first = first_of<kLoads>(tile);
#pragma unroll
            for (int k = 0; k < kLoads; ++k) {
                const long long vector = first + k * kThreads;
                store<kStream>(out + vector, some_value(static_cast<unsigned>(vector) + pass));
            }
        }
    }
}

template <int kLoads, bool kStream>
__global__ void __launch_bounds__(kThreads)
    stream_copy(const float4* x, float4* out, long long tiles, int passes) {
    for (int pass = 0; pass < passes; ++pass) {
        for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const long long first = first_of<kLoads>(tile);
            float4 value[kLoads];
#pragma unroll
            for (int k = 0; k < kLoads; ++k) value[k] = load<kStream>(x + first + k * kThreads);
#pragma unroll
            for (int k = 0; k < kLoads; ++k) store<kStream>(out + first + k * kThreads, value[k]);
        }
    }
}

template <int kLoads, bool kStream>
__global__ void __launch_bounds__(kThreads)
    stream_add(const float4* a, const float4* b, float4* out, long long tiles, int passes) {
    for (int pass = 0; pass < passes; ++pass) {
        for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const long long first = first_of<kLoads>(tile);
            float4 u[kLoads], v[kLoads];
#pragma unroll
            for (int k = 0; k < kLoads; ++k) {
                u[k] = load<kStream>(a + first + k * kThreads);
                v[k] = load<kStream>(b + first + k * kThreads);
            }
#pragma unroll
            for (int k = 0; k < kLoads; ++k) {
                store<kStream>(out + first + k * kThreads,
                               make_float4(u[k].x + v[k].x, u[k].y + v[k].y, u[k].z + v[k].z,
                                           u[k].w + v[k].w));
            }
        }
    }
}

// Eight values that do not wait for each other hide how long one operation takes.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    multiply_add(const T* start, T* out, T a, T b, int rounds) {
    const int thread = blockIdx.x * kThreads + threadIdx.x;
    T value[kChains];
#pragma unroll
    for (int k = 0; k < kChains; ++k) value[k] = start[thread] + static_cast<T>(k);
#pragma unroll 16
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int k = 0; k < kChains; ++k) value[k] = fma(value[k], a, b);
    }
    T sum = 0;
#pragma unroll
    for (int k = 0; k < kChains; ++k) sum += value[k];
    out[thread] = sum;
}
