// dotcu/async.cuh: asynchronous copies of vectors from global to shared memory.
//
//     dotcu::copy_later(&tile[threadIdx.x], x + i);   // start some copies
//     dotcu::commit_copies();                         // close the group
//     ...
//     dotcu::wait_for_copies<0>();                    // this thread's copies have arrived
//     __syncthreads();                                // so have those of the other threads
//
// Source: PTX ISA, cp.async; sm_80 and later.
#pragma once

#include <dotcu/vector.cuh>

namespace dotcu {

// Starts to copy the first `count` elements of a vector to shared memory; the rest becomes zeros.
// Both addresses are multiples of the vector's size. A part of a vector, and less than 4 bytes, are
// copied synchronously: cp.async could fill with zeros, but compute-sanitizer reports the bytes
// that it skips as read.
template <typename T, int n>
__device__ void copy_later(vector<T, n>* to, const T* from, int count = n) {
    constexpr int bytes = sizeof(vector<T, n>);
    if (bytes < 4 || count < n) {
        vector<T, n> value{};
        for (int k = 0; k < n; ++k) {
            if (k < count) value[k] = from[k];
        }
        *to = value;
        return;
    }
    const unsigned there = static_cast<unsigned>(__cvta_generic_to_shared(to));
    if constexpr (bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(there), "l"(from)
                     : "memory");
    } else if constexpr (bytes >= 4) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(there), "l"(from), "n"(bytes)
                     : "memory");
    }
}

// The same of 16 bytes without waiting, of which a part may be left out; the address is a multiple
// of 16 bytes all the same, in memory that can be read. `last`: what is left out is behind its
// tensor's end. The hardware would not read that, but compute-sanitizer reports it: the part is
// then copied synchronously.
template <typename T, int n>
__device__ void copy_part_later(vector<T, n>* to, const T* from, int count, bool last = false) {
    static_assert(sizeof(vector<T, n>) == 16, "words of 16 bytes");
    if (last && count < n) {
#pragma unroll 1  // rarely runs
        for (int k = 0; k < n; ++k) (*to)[k] = k < count ? from[k] : T{};
        return;
    }
    const unsigned there = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(there), "l"(from),
                 "r"(count * static_cast<int>(sizeof(T)))
                 : "memory");
}

// Makes the copies since the last group a group.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all of the thread's groups except the `pending` latest have arrived.
template <int pending>
__device__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace dotcu
