// dotcu/async.cuh: vectors on their way from global to shared memory, while the thread goes on.
//
//     dotcu::copy_later(&tile[threadIdx.x], x + i);   // some copies
//     dotcu::commit_copies();                         // are a group
//     ...
//     dotcu::wait_for_copies<0>();                    // the thread's own are there; then
//     __syncthreads();                                // those of the others
//
// Source: PTX ISA, cp.async; sm_80 and later.
#pragma once

#include <dotcu/vector.cuh>

namespace dotcu {

// Starts a copy to shared memory of the first `count` elements of a vector; the rest of it becomes
// zeros. Both addresses are multiples of the vector's size. Less than a whole vector, and less than
// 4 bytes, are copied at once: cp.async can fill up with zeros, but compute-sanitizer takes what it
// then leaves out for read.
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

// The copies since the last group are one.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all of the thread's groups but the `pending` latest are there.
template <int pending>
__device__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace dotcu
