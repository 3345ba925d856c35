// message.cuh: sums that blocks tell each other while they run, each by one store.
//
// A sum is a 64-bit word of global or shared memory, zero until it is known. A double is its own
// flag, with -0 in place of 0; value and flag arrive together, so nothing has to be fenced. A
// 64-bit integer leaves no pattern free: it takes two words, half of it in each, with a flag above.
#pragma once

using word = unsigned long long;

// What sums are carried in from one warp or tile to the next, and how many words that takes.
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

__device__ inline void put(word* to, word bits) {
    asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(to), "l"(bits));
}

__device__ inline word peek(const word* from) {
    word bits;
    asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(bits) : "l"(from));
    return bits;
}

__device__ inline void tell(word* to, double value) {
    put(to, __double_as_longlong(value == 0 ? -0.0 : value));
}

__device__ inline bool hear(const word* from, double& value) {
    const word bits = peek(from);
    value = __longlong_as_double(bits);
    return bits != 0;
}

__device__ inline void tell(word* to, long long value) {
    constexpr word flag = 1ull << 32;
    put(to, flag | static_cast<unsigned>(value));
    put(to + 1, flag | static_cast<word>(value) >> 32);
}

__device__ inline bool hear(const word* from, long long& value) {
    const word low = peek(from), high = peek(from + 1);
    value = static_cast<long long>(high << 32 | static_cast<unsigned>(low));
    return low != 0 && high != 0;
}

// The sum of what `count` tiles tell, at most `most`, `stride` words apart: always in the same
// order. All are asked before the first one is waited for.
template <int most, typename Carry>
__device__ Carry hear_all(const word* from, int count, long long stride) {
    Carry value[most];
    bool known[most];
#pragma unroll
    for (int i = 0; i < most; ++i) known[i] = i >= count || hear(from + i * stride, value[i]);
    Carry sum = 0;
#pragma unroll
    for (int i = 0; i < most; ++i) {
        while (!known[i]) known[i] = hear(from + i * stride, value[i]);
        if (i < count) sum += value[i];
    }
    return sum;
}
