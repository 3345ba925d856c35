// dotcu/cluster.cuh: the blocks of a cluster, which read and write each other's shared memory.
//
//     __shared__ float of_block[dotcu::max_cluster];
//     dotcu::cluster_arrive();                          // first of all: this block has begun
//     ...
//     dotcu::cluster_wait();                            // and so have the others
//     total = dotcu::reduce_cluster(total, of_block, dotcu::plus());
//
// A kernel launched with cluster=c runs in groups of c blocks that are on the GPU at the same time.
// Without a cluster a block is a cluster of its own. sm_90 and later; elsewhere a cluster is one
// block. No block may touch another's shared memory before that one has begun, nor end while
// another still touches its own; after reduce_cluster nobody does.
// Source: PTX ISA, mapa, barrier.cluster; CUDA Programming Guide, "Distributed Shared Memory".
#pragma once

#include <dotcu/reduce.cuh>

namespace dotcu {

constexpr int max_cluster = 16;

// This block's place in its cluster, and how many blocks that has.
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

// The barrier below in two halves, which says that all blocks have come so far, and nothing of
// memory: what a thread does between the halves overlaps with the waiting.
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

// A barrier for all threads of all blocks of the cluster; what each wrote before, to its own or to
// another's shared memory, the others can read after it.
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

// Where the block of that rank has what `shared` points to here.
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

// One value out of one of each block: `value` is the same in all threads of a block, and so is the
// result in all of the cluster. `of_block` is shared memory, one value for each block of the
// cluster; two reductions in a row take one each, and after cluster_wait() they need no other.
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

}  // namespace dotcu
