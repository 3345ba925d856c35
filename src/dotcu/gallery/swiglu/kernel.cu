// swiglu: out[i] = silu(gate[i]) * up[i] with silu(x) = x / (1 + e^-x), and its gradients.
//
//     swiglu             gate, up -> out                       n contiguous elements each, which
//     swiglu_backward    grad, gate, up -> grad_gate, grad_up  start at multiples of `lanes`
//
// Idea: as in add, a thread issues all of its loads before it uses the first: `steps` vectors of
// `lanes` elements of each input, a block apart. Fusion saves a pass for silu, and both gradients
// come from one read of the three inputs. Half types compute in float and are rounded once. A block
// has at least `lanes` threads.
//
// Cost: swiglu moves 3 n elements, swiglu_backward 5 n, with some 15 and 20 operations on each:
// bound by memory, as long as the exponential and the division are lean. Source: Noam Shazeer, "GLU
// Variants Improve Transformer", 2020.

#include <dotcu/grid.cuh>
#include <dotcu/vector.cuh>

template <typename Wide>
struct Sigmoid {
    Wide value, lack;  // 1 / (1 + e^-x), and 1 minus that
};

template <typename T>
__device__ Sigmoid<double> sigmoid(double x) {
    const double s = 1 / (1 + exp(-x));
    return {s, 1 - s};
}

// e^-|x| never overflows and neither value is a difference, so both are accurate at any x; the fast
// exponential suffices for half types. Since 1 + e is between 1 and 2, one Newton step makes the
// fast reciprocal as accurate as a division.
template <typename T>
__device__ Sigmoid<float> sigmoid(float x) {
    const float e = sizeof(T) == 2 ? __expf(-fabsf(x)) : expf(-fabsf(x));
    const float r = __fdividef(1, 1 + e), more = fmaf(r, fmaf(-(1 + e), r, 1), r);
    return x < 0 ? Sigmoid<float>{e * more, more} : Sigmoid<float>{more, e * more};
}

template <typename Wide, typename T>
__device__ void forward(T (&value)[2]) {
    const Wide gate = static_cast<Wide>(value[0]), up = static_cast<Wide>(value[1]);
    value[0] = static_cast<T>(gate * sigmoid<T>(gate).value * up);
}

template <typename Wide, typename T>
__device__ void backward(T (&value)[3]) {
    const Wide grad = static_cast<Wide>(value[0]);
    const Wide gate = static_cast<Wide>(value[1]), up = static_cast<Wide>(value[2]);
    const Sigmoid<Wide> s = sigmoid<T>(gate);
    value[0] = static_cast<T>(grad * up * (s.value * (1 + gate * s.lack)));
    value[1] = static_cast<T>(grad * (gate * s.value));
}

// compute(value) replaces one element of each input by one of each output. The rest after the last
// whole vector, fewer than `lanes` elements, goes to the first threads, one each.
template <int lanes, int steps, typename T, int inputs, int outputs>
__device__ void elementwise(void (*compute)(T (&)[inputs]), const T* const (&from)[inputs],
                            T* const (&to)[outputs], long long n) {
    const long long vectors = n / lanes;
    const long long first = static_cast<long long>(blockIdx.x) * blockDim.x * steps + threadIdx.x;
    const long long rest = vectors * lanes + dotcu::thread_of_grid();

    dotcu::vector<T, lanes> vector[steps][inputs];
    T value[inputs], last[inputs];
#pragma unroll
    for (int k = 0; k < steps; ++k) {
        const long long v = first + k * blockDim.x;
        if (v >= vectors) continue;
        for (int i = 0; i < inputs; ++i) vector[k][i] = dotcu::load<lanes>(from[i] + v * lanes);
    }
    for (int i = 0; rest < n && i < inputs; ++i) last[i] = from[i][rest];

#pragma unroll
    for (int k = 0; k < steps; ++k) {
        const long long v = first + k * blockDim.x;
        if (v >= vectors) continue;
#pragma unroll
        for (int j = 0; j < lanes; ++j) {
            for (int i = 0; i < inputs; ++i) value[i] = vector[k][i][j];
            compute(value);
            for (int o = 0; o < outputs; ++o) vector[k][o][j] = value[o];
        }
        for (int o = 0; o < outputs; ++o) dotcu::store(to[o] + v * lanes, vector[k][o]);
    }
    if (rest < n) compute(last);
    for (int o = 0; rest < n && o < outputs; ++o) to[o][rest] = last[o];
}

template <typename T, typename Wide, int lanes, int steps>
__global__ void swiglu(const T* gate, const T* up, T* out, long long n) {
    elementwise<lanes, steps, T>(forward<Wide, T>, {gate, up}, {out}, n);
}

template <typename T, typename Wide, int lanes, int steps>
__global__ void swiglu_backward(const T* grad, const T* gate, const T* up, T* grad_gate, T* grad_up,
                                long long n) {
    elementwise<lanes, steps, T>(backward<Wide, T>, {grad, gate, up}, {grad_gate, grad_up}, n);
}
