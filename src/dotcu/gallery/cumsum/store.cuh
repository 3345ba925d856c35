// store.cuh: a vector into global memory, as one.
#pragma once

#include <dotcu/vector.cuh>

// Stores by one instruction that the compiler cannot take apart. Else it makes one thing of this
// and of the stores of single elements, for which float needs 54 registers, not 40: then 4 blocks
// share a multiprocessor, not 6.
template <typename T, int width>
__device__ void store_whole(T* to, const dotcu::vector<T, width>& value) {
    using words = dotcu::detail::words_of<dotcu::vector<T, width>>;
    __stwb(reinterpret_cast<words*>(to), dotcu::detail::to_words(value));
}
