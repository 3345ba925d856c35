// dotcu/vector.cuh: neighbouring elements, moved by one instruction and computed in float.
//
//     constexpr int n = dotcu::lanes_of_16_bytes<T>;           // 4 floats, 8 of a half type
//     const auto x = dotcu::to_float(dotcu::load<n>(in + i));
//     dotcu::vector<float, n> y;
//     for (int k = 0; k < n; ++k) y[k] = x[k] * x[k];
//     dotcu::store(out + i, dotcu::to<T>(y));
//
// A load of 16 bytes moves as much as eight loads of 2 bytes, with an eighth of the instructions
// and more bytes in flight. (The streaming hints ld.global.cs and st.global.cs make kernels that
// stream through an H200's memory 5 to 10 % slower: measured, 2026-11.)
//
// You must guarantee that the address is a multiple of the vector's bytes; test it on the host with
// dotcu.is_aligned(t, 16). Otherwise the hardware faults, and the simulator names the line.
#pragma once

struct __nv_bfloat16;  // defined in cuda_bf16.h if a kernel includes it

namespace dotcu {

template <typename T, int n>
struct alignas(sizeof(T) * n) vector {
    static_assert(n > 0 && (n & (n - 1)) == 0, "a vector has a power of two of elements");
    static constexpr int size = n;

    T lane[n];

    __device__ T& operator[](int k) { return lane[k]; }
    __device__ const T& operator[](int k) const { return lane[k]; }
};

template <typename T>
constexpr int lanes_of_16_bytes = 16 / sizeof(T);

namespace detail {

// The type of unsigned words that one instruction moves, by bytes.
template <int bytes>
struct words;
template <>
struct words<1> {
    using type = unsigned char;
};
template <>
struct words<2> {
    using type = unsigned short;
};
template <>
struct words<4> {
    using type = unsigned;
};
template <>
struct words<8> {
    using type = uint2;
};
template <>
struct words<16> {
    using type = uint4;
};

template <typename T>
constexpr bool is_bfloat16 = false;
template <>
inline constexpr bool is_bfloat16<__nv_bfloat16> = true;

template <typename V>
using words_of = typename words<sizeof(V)>::type;

template <typename V>
__device__ V from_words(words_of<V> bits) {
    V value;
    memcpy(&value, &bits, sizeof(V));
    return value;
}

template <typename V>
__device__ words_of<V> to_words(const V& value) {
    words_of<V> bits;
    memcpy(&bits, &value, sizeof(V));
    return bits;
}

}  // namespace detail

// Loads n elements from `from` on, by as few instructions of up to 16 bytes as possible.
template <int n, typename T>
__device__ vector<T, n> load(const T* from) {
    constexpr int most = lanes_of_16_bytes<T>;
    vector<T, n> value;
    if constexpr (n <= most) {
        using words = detail::words_of<vector<T, n>>;
        value = detail::from_words<vector<T, n>>(*reinterpret_cast<const words*>(from));
    } else {
#pragma unroll
        for (int k = 0; k < n; k += most) {
            const auto part = load<most>(from + k);
#pragma unroll
            for (int i = 0; i < most; ++i) value[k + i] = part[i];
        }
    }
    return value;
}

// Loads n elements from `from` on, or returns a vector of `other` if not `there`. (A vector that is
// filled and then loaded under an `if` would be assembled element by element.)
template <int n, typename T>
__device__ vector<T, n> load_if(bool there, const T* from, T other) {
    using V = vector<T, n>;
    V value;
    for (T& lane : value.lane) lane = other;
    auto bits = detail::to_words(value);
    if (there) bits = *reinterpret_cast<const detail::words_of<V>*>(from);
    return detail::from_words<V>(bits);
}

// Stores n elements from `to` on, at most 16 bytes.
template <typename T, int n>
__device__ void store(T* to, const vector<T, n>& value) {
    using V = vector<T, n>;
    *reinterpret_cast<detail::words_of<V>*>(to) = detail::to_words(value);
}

// Converts each element to `Wide`, float or double: exact for these and the half types. Bfloat16 is
// the upper half of a float, so two are extracted from their word by one instruction each.
template <typename Wide, typename T, int n>
__device__ vector<Wide, n> widen(const vector<T, n>& x) {
    vector<Wide, n> y;
    if constexpr (detail::is_bfloat16<T> && n > 1) {
        unsigned words[n / 2];
        memcpy(words, x.lane, sizeof(words));
#pragma unroll
        for (int k = 0; k < n; k += 2) {
            y[k] = __builtin_bit_cast(float, words[k / 2] << 16);
            y[k + 1] = __builtin_bit_cast(float, words[k / 2] & 0xffff0000);
        }
    } else {
#pragma unroll
        for (int k = 0; k < n; ++k) y[k] = static_cast<Wide>(x[k]);
    }
    return y;
}

template <typename T, int n>
__device__ vector<float, n> to_float(const vector<T, n>& x) {
    return widen<float>(x);
}

// Converts each element to T, rounding to nearest even. On sm_80 and later one instruction converts
// two elements to a half type (cvt.rn.f16x2.f32, cvt.rn.bf16x2.f32).
template <typename T, typename Wide, int n>
__device__ vector<T, n> to(const vector<Wide, n>& x) {
    vector<T, n> y;
#pragma unroll
    for (int k = 0; k < n; ++k) y[k] = static_cast<T>(x[k]);
    return y;
}

// Makes the compiler extract elements from their vector again from here on. Otherwise it keeps
// elements of a half type as floats until their last use, in twice the registers. (The instruction
// moves nothing, but ptxas does not know that.)
template <typename T, int n>
__device__ void repack(vector<T, n>& x) {
    if constexpr (sizeof(T) == 2 && n > 1) {
        unsigned words[n / 2];
        memcpy(words, x.lane, sizeof(words));
        for (unsigned& word : words) asm volatile("prmt.b32 %0, %0, 0, 0x3210;" : "+r"(word));
        memcpy(x.lane, words, sizeof(words));
    }
}

}  // namespace dotcu
