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

namespace dotcu {

// Starts a copy to shared memory of the first `bytes` of a vector; the rest of it becomes zeros.
// Of less than 4 bytes, which cp.async cannot, at once. Both addresses are multiples of its size.
template <typename V>
__device__ void copy_later(V* to, const void* from, int bytes = sizeof(V)) {
    const unsigned there = static_cast<unsigned>(__cvta_generic_to_shared(to));
    if constexpr (sizeof(V) == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(there), "l"(from),
                     "r"(bytes)
                     : "memory");
    } else if constexpr (sizeof(V) >= 4) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(there), "l"(from),
                     "n"(sizeof(V)), "r"(bytes)
                     : "memory");
    } else {
        V value{};
        if (bytes == sizeof(V)) value = *static_cast<const V*>(from);
        if (bytes > 0 && bytes < sizeof(V)) memcpy(&value, from, 1);  // of two elements of a byte
        *to = value;
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
