// Instructions of clusters. Macros, so that a finding has the line where one is used.
__device__ __forceinline__ unsigned near(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ unsigned rank() {
    unsigned r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

__device__ __forceinline__ unsigned far(const void* p, unsigned to) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(near(p)), "r"(to));
    return there;
}

#define MEET() \
    asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory")
#define INIT(barrier, count)                                                                    \
    asm volatile(                                                                               \
        "mbarrier.init.shared::cta.b64 [%0], %1;\n fence.mbarrier_init.release.cluster;" ::"r"( \
            near(barrier)),                                                                     \
        "r"(count)                                                                              \
        : "memory")
#define EXPECT(barrier, bytes)                                                                  \
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(near(barrier)), \
                 "r"(bytes)                                                                     \
                 : "memory")
#define ARRIVE(barrier, to)                                                                    \
    asm volatile(                                                                              \
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(far(barrier, to)) \
        : "memory")
#define WAIT(barrier, parity)                                                                   \
    for (unsigned done = 0; !done;)                                                             \
    asm volatile(                                                                               \
        "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;" \
        " selp.u32 %0, 1, 0, p; }"                                                              \
        : "=r"(done)                                                                            \
        : "r"(near(barrier)), "r"(parity)                                                       \
        : "memory")
#define STORE_ASYNC(to, value, barrier)                                                        \
    asm volatile(                                                                              \
        "st.async.mbarrier::complete_tx::bytes.shared::cluster.b32 [%0], %1, [%2];" ::"r"(to), \
        "r"(value), "r"(barrier)                                                               \
        : "memory")
#define COPY(to, from, bytes, barrier)                                                            \
    asm volatile(                                                                                 \
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, " \
        "[%3];" ::"r"(to),                                                                        \
        "r"(near(from)), "r"(bytes), "r"(barrier)                                                 \
        : "memory")
#define MULTICAST(to, from, bytes, barrier, mask)                                              \
    asm volatile(                                                                              \
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster" \
        " [%0], [%1], %2, [%3], %4;" ::"r"(near(to)),                                          \
        "l"(from), "r"(bytes), "r"(near(barrier)), "h"((short)(mask))                          \
        : "memory")
