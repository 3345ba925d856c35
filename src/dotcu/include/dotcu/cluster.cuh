// dotcu/cluster.cuh: the blocks of a cluster, which read and write each other's shared memory.
//
//     __shared__ float of_block[dotcu::max_cluster];
//     dotcu::cluster_arrive();                          // at the start: this block runs
//     ...
//     dotcu::cluster_wait();                            // the other blocks run as well
//     total = dotcu::reduce_cluster(total, of_block, dotcu::plus());
//
// A kernel launched with cluster=c runs in groups of c blocks that are on the GPU at the same time.
// Without clusters each block is a cluster of one. sm_90 and later; before, every cluster has one
// block. A block must not access another's shared memory before that block runs, and must not end
// while another block still accesses its own; after reduce_cluster no block does.
// Source: PTX ISA, mapa, barrier.cluster; CUDA Programming Guide, "Distributed Shared Memory".
#pragma once

#include <dotcu/reduce.cuh>

namespace dotcu {

constexpr int max_cluster = 16;

// This block's rank in its cluster, and the number of blocks in the cluster.
__device__ inline unsigned cluster_rank() {
    unsigned rank = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}

__device__ inline unsigned cluster_blocks() {
    unsigned blocks = 1;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
#endif
    return blocks;
}

// The barrier below in two halves, without any guarantee for memory: after the second half, all
// blocks have reached the first. Work between the halves overlaps with the wait.
__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;");
#endif
}

__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// A barrier for all threads of the cluster. Writes before it, to any block's shared memory, are
// visible to all of them after it.
__device__ inline void cluster_sync() {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;" ::
            : "memory");
#else
    __syncthreads();
#endif
}

// Returns the address of `shared` in the shared memory of the block with that rank.
template <typename T>
__device__ T* shared_of(T* shared, unsigned rank) {
#if __CUDA_ARCH__ >= 900
    unsigned long long there;
    asm("mapa.u64 %0, %1, %2;"
        : "=l"(there)
        : "l"(reinterpret_cast<unsigned long long>(shared)), "r"(rank));
    return reinterpret_cast<T*>(there);
#else
    return shared;
#endif
}

// Reduces one value per block to one value. `value` is the same in all threads of a block, the
// result in all threads of the cluster. `of_block` is shared memory, one value for each block of
// the cluster. Two consecutive reductions need an array each, and no barrier but cluster_wait().
template <typename T, typename Op>
__device__ T reduce_cluster(T value, T* of_block, Op op) {
    const unsigned blocks = cluster_blocks();
    if (blocks == 1) return value;
    if (threadIdx.x < blocks) *shared_of(of_block + cluster_rank(), threadIdx.x) = value;
    cluster_sync();
    T total = of_block[0];
    for (unsigned block = 1; block < blocks; ++block) total = op(total, of_block[block]);
    return total;
}

// Shared memory through which each block of a cluster sends one value to all blocks, once:
//
//     __shared__ dotcu::cluster_mail<float, blocks> mail;
//     mail.open();                                    // at the start, by every thread
//     ...
//     mail.send(total);                               // the same value in all threads of a block
//     if (threadIdx.x == 0) first = mail.get()[0];    // in the order of their ranks
//
// st.async writes the value and signals the mbarrier of the receiving block, so no fence is needed.
// cluster_sync() includes a fence over everything that a thread has written, which takes
// microseconds while other blocks of the multiprocessor write (measured: H200, 2026-11).
// Source: PTX ISA, st.async, mbarrier.
template <typename T, int blocks>
struct cluster_mail {
    static_assert(sizeof(T) % 4 == 0 && blocks <= max_cluster, "words, and one of each block");
#if __CUDA_ARCH__ >= 900
    static constexpr bool by_mail = blocks > 1;  // st.async is illegal outside a cluster
#else
    static constexpr bool by_mail = false;
#endif
    alignas(8) T of_block[blocks];
    unsigned long long arrived;

    __device__ void open() {
        if constexpr (by_mail) {
            if (threadIdx.x == 0) {
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier()) : "memory");
                asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
                asm volatile(
                    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier()),
                    "n"(sizeof(of_block))
                    : "memory");
            }
            cluster_arrive();
        }
    }

    __device__ void send(const T& value) {
        if constexpr (!by_mail) {
            if (threadIdx.x == 0) of_block[0] = value;
            __syncthreads();
        } else {
            cluster_wait();
            if (threadIdx.x >= blocks) return;
            unsigned words[sizeof(T) / 4];
            memcpy(words, &value, sizeof(T));
            const unsigned mine =
                static_cast<unsigned>(__cvta_generic_to_shared(of_block + cluster_rank()));
            const unsigned to = of_rank(mine), arrival = of_rank(barrier());
#pragma unroll
            for (unsigned k = 0; k < sizeof(T) / 4; ++k) {
                asm volatile(
                    "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::
                        "r"(to + 4 * k),
                    "r"(words[k]), "r"(arrival)
                    : "memory");
            }
        }
    }

    __device__ const T* get() {
        if constexpr (by_mail) {
            unsigned done = 0;
            while (!done) {
                asm volatile(
                    "{ .reg .pred p;\n"
                    "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
                    "selp.u32 %0, 1, 0, p; }"
                    : "=r"(done)
                    : "r"(barrier())
                    : "memory");
            }
        }
        return of_block;
    }

  private:
    __device__ unsigned barrier() {
        return static_cast<unsigned>(__cvta_generic_to_shared(&arrived));
    }
    // The same address in the block whose rank is this thread's index.
    __device__ static unsigned of_rank(unsigned address) {
        unsigned there;
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(threadIdx.x));
        return there;
    }
};

}  // namespace dotcu
