// Signals between GPUs, on the signal pads that dotcu.peers gives.
//
// A pad has a word for each pair of a block and a rank. It is 0 before and after, so the next
// launch, or the next replay of a CUDA graph, finds it as this one did.
#pragma once

namespace dotcu {

// Sets a word of another rank's pad, when its last signal was taken.
__device__ inline void signal(unsigned* word) {
    while (atomicCAS_system(word, 0u, 1u) != 0u) {
    }
}

// Waits for a word of the own pad, and takes the signal.
__device__ inline void await_signal(unsigned* word) {
    while (atomicCAS_system(word, 1u, 0u) != 1u) {
    }
}

// Lets the blocks of one number meet on all ranks: what each wrote before, all see after. Each
// block has at least as many threads as there are ranks, and all of them call it.
__device__ inline void meet_ranks(unsigned* const* pads, int rank, int ranks) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < ranks) {
        int other = static_cast<int>(threadIdx.x);
        __threadfence_system();
        signal(pads[other] + blockIdx.x * ranks + rank);
        await_signal(pads[rank] + blockIdx.x * ranks + other);
        __threadfence_system();
    }
    __syncthreads();
}

}  // namespace dotcu
