// dotcu/pipeline.cuh: stages of shared memory between warps that fill them and warps that use them.
//
//     __shared__ dotcu::pipeline<stages> pipe;
//     if (threadIdx.x == 0) pipe.init(1, consumers);         // arrivals that fill, and free, a
//     stage
//     __syncthreads();
//     dotcu::ring<stages> at;                                // each thread's own
//     if (producer) {                                        // one thread
//         dotcu::registers_down<40>();                       // its whole warpgroup
//         for (...; at.next()) {
//             auto& full = pipe.acquire(at);                 // the stage is free
//             full.arrive_expect(bytes);
//             dotcu::tma_load(tiles[at.stage], map, full, row, column);
//         }
//     } else {
//         dotcu::registers_up<232>();
//         for (...; at.next()) {
//             pipe.wait(at);                                 // the stage is full
//             ...
//             if (first of the consumer's threads) pipe.release(at);
//         }
//     }
//
// You must guarantee: every thread's ring goes through all stages in the same order; a consumer
// releases a stage after its last read of it. In a cluster, no block ends while another may still
// release a stage of it (cluster_sync() at the end), and none starts before the barriers of the
// others are initialized (cluster_sync() in place of __syncthreads()). The simulator checks this.
// Source: PTX ISA, mbarrier, setmaxnreg, bar.
#pragma once

#include <dotcu/tma.cuh>

namespace dotcu {

// A position in a ring of stages: the stage, and the parity of the round.
template <int stages>
struct ring {
    int stage = 0;
    unsigned parity = 0;
    __device__ void next() {
        if (++stage == stages) stage = 0, parity ^= 1;
    }
    __device__ void skip(int count) {  // stages that others use
        parity ^= (stage + count) / stages & 1;
        stage = (stage + count) % stages;
    }
};

template <int stages>
struct pipeline {
    mbarrier full[stages], empty[stages];

    // One thread calls. `fills`, `frees`: arrivals for each stage, of producers and of consumers.
    __device__ void init(unsigned fills, unsigned frees) {
        for (int s = 0; s < stages; ++s) full[s].set(fills), empty[s].set(frees);
        mbarrier::show();
    }

    // Waits until the stage is free, and gives the barrier that its bytes count for.
    __device__ mbarrier& acquire(ring<stages> at) {
        empty[at.stage].wait(at.parity ^ 1);
        return full[at.stage];
    }

    // Waits until the stage is full.
    __device__ void wait(ring<stages> at) { full[at.stage].wait(at.parity); }

    // Arrives for the freed stage, in this block or in the block of the cluster with that rank.
    __device__ void release(ring<stages> at) { empty[at.stage].arrive(); }
    __device__ void release(ring<stages> at, unsigned rank) { empty[at.stage].arrive_at(rank); }
};

// Registers of each thread from here on, a multiple of 8: called by whole warpgroups, in a kernel
// with
// __launch_bounds__(threads, 1). Those that lower it make room for those that raise it.
template <int count>
__device__ void registers_down() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ void registers_up() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

// Barrier `number`, 1 to 15, of `threads` threads (__syncthreads() is 0): arrive and wait, or only
// arrive.
__device__ inline void named_sync(int number, int threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ inline void named_arrive(int number, int threads) {
    asm volatile("barrier.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

}  // namespace dotcu
