// dotcu/tma.cuh: boxes of a tensor, copied to shared memory and back by TMA (sm_90 and later).
//
//     __global__ void twice(const __grid_constant__ CUtensorMap x,
//                           const __grid_constant__ CUtensorMap out)
//     {
//         __shared__ alignas(128) float tile[32][64];
//         __shared__ dotcu::mbarrier arrived;
//         if (threadIdx.x == 0) arrived.init(1);
//         __syncthreads();
//         if (threadIdx.x == 0) {
//             arrived.arrive_expect(sizeof(tile));
//             dotcu::tma_load(tile, x, arrived, row, column);
//         }
//         arrived.wait(0);
//         ...                              // all threads: tile[i][j] *= 2
//         dotcu::tma_fence();
//         __syncthreads();
//         if (threadIdx.x == 0) {
//             dotcu::tma_store(out, tile, row, column);
//             dotcu::tma_commit();
//             dotcu::tma_wait<0>();
//         }
//     }
//
// On the host each map is dotcu.tensor_map(t, box=(32, 64)). Coordinates count elements of the
// tensor, in the order of its dimensions, as in dotcu::tensor: the last one is innermost. (PTX has
// the opposite order.) They may be too large, and those of a load may be negative: a load fills the
// part of the box outside the tensor, a store skips it. Two cases are an illegal instruction (seen:
// H200, driver 580, CUDA 13.0, 2026-11): a last coordinate that is not at a multiple of 16 bytes (4
// floats, for example), also outside the tensor; and a negative coordinate of a store, even if a
// part of the box is inside the tensor.
//
// You must guarantee these coordinates, and that `tile` is large enough for the box, 128-byte
// aligned (1024 for a swizzle of 128, so that the pattern starts with the tile), and not in use.
// The simulator checks all of this. With a swizzle every row has that many bytes of the tile, also
// a shorter row; the bytes between rows are not written, and a barrier counts only the box's.
#pragma once

#include <cuda.h>  // CUtensorMap

namespace dotcu {

__device__ inline unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// A barrier in shared memory that waits for threads and for bytes. A phase completes after the
// number of arrivals that init() was given, and all bytes that they announced.
struct alignas(8) mbarrier {
    unsigned long long state;

    // Called by one thread; then __syncthreads(), before any thread uses the barrier.
    __device__ void init(unsigned arrivals) {
        set(arrivals);
        show();
    }

    // The same for several barriers: set() each, then show() once.
    __device__ void set(unsigned arrivals) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)),
                     "r"(arrivals)
                     : "memory");
    }
    __device__ static void show() {
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }

    // Arrives and announces the bytes of copies: of the whole box, including filled elements, but
    // without the gaps that a swizzle leaves between short rows.
    __device__ void arrive_expect(unsigned bytes) {
        asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(
                         shared_address(this)),
                     "r"(bytes)
                     : "memory");
    }

    // One arrival, without bytes; or one at the same barrier of the cluster's block with that rank.
    // The latter orders nothing for the other block but what copies and products have read: a
    // release for the cluster waits for all writes of the thread, which costs a quarter of a
    // product's speed.
    __device__ void arrive() {
        asm volatile(
            "mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(this))
            : "memory");
    }
    __device__ void arrive_at(unsigned rank) {
        asm volatile(
            "{ .reg .b32 there;\n"
            "mapa.shared::cluster.u32 there, %0, %1;\n"
            "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(shared_address(this)),
            "r"(rank)
            : "memory");
    }

    // Waits until the phase of this parity is complete: 0 for the first, then 1, then 0, ...
    __device__ void wait(unsigned parity) {
        unsigned done = 0;
        while (!done) {
            asm volatile(
                "{ .reg .pred p;\n"
                "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                "selp.u32 %0, 1, 0, p; }"
                : "=r"(done)
                : "r"(shared_address(this)), "r"(parity)
                : "memory");
        }
    }
};

// Fetches a map, before the first copy needs it.
__device__ inline void tma_prefetch(const CUtensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

#define DOTCU_TMA_LOAD(dim, coordinates, ...)                                                    \
    if constexpr (multicast)                                                                     \
        asm volatile("cp.async.bulk.tensor." dim                                                 \
                     ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"                 \
                     ".multicast::cluster [%0], [%1, " coordinates "], [%2], %3;" ::"r"(target), \
                     "l"(&map), "r"(barrier), "h"(blocks), __VA_ARGS__                           \
                     : "memory");                                                                \
    else                                                                                         \
        asm volatile("cp.async.bulk.tensor." dim                                                 \
                     ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"                 \
                     " [%0], [%1, " coordinates "], [%2];" ::"r"(target),                        \
                     "l"(&map), "r"(barrier), "h"(blocks), __VA_ARGS__                           \
                     : "memory")
template <bool multicast, typename... Index>
__device__ void tma_load_to(unsigned short blocks, void* to, const CUtensorMap& map,
                            mbarrier& arrived, Index... index) {
    constexpr int rank = sizeof...(Index);
    static_assert(1 <= rank && rank <= 5, "a tensor map has one to five dimensions");
    const int at[] = {static_cast<int>(index)...};
    const unsigned target = shared_address(to), barrier = shared_address(&arrived);
    if constexpr (rank == 1) {
        DOTCU_TMA_LOAD("1d", "{%4}", "r"(at[0]));
    } else if constexpr (rank == 2) {
        DOTCU_TMA_LOAD("2d", "{%4, %5}", "r"(at[1]), "r"(at[0]));
    } else if constexpr (rank == 3) {
        DOTCU_TMA_LOAD("3d", "{%4, %5, %6}", "r"(at[2]), "r"(at[1]), "r"(at[0]));
    } else if constexpr (rank == 4) {
        DOTCU_TMA_LOAD("4d", "{%4, %5, %6, %7}", "r"(at[3]), "r"(at[2]), "r"(at[1]), "r"(at[0]));
    } else {
        DOTCU_TMA_LOAD("5d", "{%4, %5, %6, %7, %8}", "r"(at[4]), "r"(at[3]), "r"(at[2]), "r"(at[1]),
                       "r"(at[0]));
    }
}
#undef DOTCU_TMA_LOAD

// Copies a box into shared memory; called by one thread. The bytes count for `arrived`. The last
// index is at a multiple of 16 bytes.
template <typename... Index>
__device__ void tma_load(void* to, const CUtensorMap& map, mbarrier& arrived, Index... index) {
    tma_load_to<false>(0, to, map, arrived, index...);
}

// The same to several blocks of the cluster, those of the bits in `blocks`: at the same address in
// each, and counted there for its own `arrived`.
template <typename... Index>
__device__ void tma_multicast(unsigned short blocks, void* to, const CUtensorMap& map,
                              mbarrier& arrived, Index... index) {
    tma_load_to<true>(blocks, to, map, arrived, index...);
}

// Copies a box out of shared memory, as part of the current group; called by one thread. No index
// is negative, and the last one is at a multiple of 16 bytes.
template <typename... Index>
__device__ void tma_store(const CUtensorMap& map, const void* from, Index... index) {
    constexpr int rank = sizeof...(Index);
    static_assert(1 <= rank && rank <= 5, "a tensor map has one to five dimensions");
    const int at[] = {static_cast<int>(index)...};
    const unsigned source = shared_address(from);
#define DOTCU_TMA_STORE(dim, coordinates, ...)                                                   \
    asm volatile("cp.async.bulk.tensor." dim                                                     \
                 ".global.shared::cta.tile.bulk_group [%0, " coordinates "], [%1];" ::"l"(&map), \
                 "r"(source), __VA_ARGS__                                                        \
                 : "memory")
    if constexpr (rank == 1) {
        DOTCU_TMA_STORE("1d", "{%2}", "r"(at[0]));
    } else if constexpr (rank == 2) {
        DOTCU_TMA_STORE("2d", "{%2, %3}", "r"(at[1]), "r"(at[0]));
    } else if constexpr (rank == 3) {
        DOTCU_TMA_STORE("3d", "{%2, %3, %4}", "r"(at[2]), "r"(at[1]), "r"(at[0]));
    } else if constexpr (rank == 4) {
        DOTCU_TMA_STORE("4d", "{%2, %3, %4, %5}", "r"(at[3]), "r"(at[2]), "r"(at[1]), "r"(at[0]));
    } else {
        DOTCU_TMA_STORE("5d", "{%2, %3, %4, %5, %6}", "r"(at[4]), "r"(at[3]), "r"(at[2]),
                        "r"(at[1]), "r"(at[0]));
    }
#undef DOTCU_TMA_STORE
}

// Called by every thread that wrote to shared memory, then __syncthreads(), before a copy out of
// it.
__device__ inline void tma_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Closes the thread's group of stores.
__device__ inline void tma_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until all of the thread's groups except the `pending` latest have read shared memory:
// needed before it is written again and before the block ends. The writes to global memory are
// complete when the kernel has ended.
template <int pending>
__device__ void tma_wait() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

}  // namespace dotcu
