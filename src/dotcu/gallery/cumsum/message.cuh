// message.cuh: sums that running blocks send to each other.
//
// A message is a 64-bit word of global or shared memory, zero until it is sent. A double is its own
// flag, with -0 in place of 0: value and flag arrive together, and no fence is needed. A 64-bit
// integer has no free bit pattern: it takes two words, each with 32 bits of it and a flag above.
#pragma once

using word = unsigned long long;

// The type that carries sums from one warp or tile to the next, and the words of its message.
template <typename Sum>
struct carry_of {
    using type = double;
    static constexpr int words = 1;
};
template <>
struct carry_of<long long> {
    using type = long long;
    static constexpr int words = 2;
};

__device__ inline void store_word(word* to, word bits) {
    asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(to), "l"(bits));
}

__device__ inline word load_word(const word* from) {
    word bits;
    asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(bits) : "l"(from));
    return bits;
}

__device__ inline void send(word* to, double value) {
    store_word(to, __double_as_longlong(value == 0 ? -0.0 : value));
}

__device__ inline bool receive(const word* from, double& value) {
    const word bits = load_word(from);
    value = __longlong_as_double(bits);
    return bits != 0;
}

__device__ inline void send(word* to, long long value) {
    constexpr word flag = 1ull << 32;
    store_word(to, flag | static_cast<unsigned>(value));
    store_word(to + 1, flag | static_cast<word>(value) >> 32);
}

__device__ inline bool receive(const word* from, long long& value) {
    const word low = load_word(from), high = load_word(from + 1);
    value = static_cast<long long>(high << 32 | static_cast<unsigned>(low));
    return low != 0 && high != 0;
}

// Returns the sum of the messages of `count` tiles, at most `most`, `stride` words apart, added in
// a fixed order. All loads are issued before the first wait.
template <int most, typename Carry>
__device__ Carry receive_sum(const word* from, int count, long long stride) {
    Carry value[most];
    bool known[most];
#pragma unroll
    for (int i = 0; i < most; ++i) known[i] = i >= count || receive(from + i * stride, value[i]);
    Carry sum = 0;
#pragma unroll
    for (int i = 0; i < most; ++i) {
        while (!known[i]) known[i] = receive(from + i * stride, value[i]);
        if (i < count) sum += value[i];
    }
    return sum;
}
