// store.cuh: stores a vector to global memory by one instruction.
#pragma once

#include <dotcu/vector.cuh>

// Stores by one instruction that the compiler cannot split. Otherwise it merges this store with
// those of single elements, and the kernel for float needs 54 registers instead of 40: 4 blocks on
// a multiprocessor instead of 6.
template <typename T, int width>
__device__ void store_whole(T* to, const dotcu::vector<T, width>& value) {
    using words = dotcu::detail::words_of<dotcu::vector<T, width>>;
    __stwb(reinterpret_cast<words*>(to), dotcu::detail::to_words(value));
}
