// What the kernels of clusters share: addresses, mbarriers, and the barrier of the cluster.
#define DEVICE __device__ __forceinline__

DEVICE unsigned near(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

DEVICE unsigned rank() {
    unsigned r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

DEVICE unsigned blocks() {
    unsigned n;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
    return n;
}

DEVICE unsigned far(const void* p, unsigned to) {
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(near(p)), "r"(to));
    return there;
}

DEVICE void arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEVICE void wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

DEVICE void meet() {
    arrive();
    wait();
}

DEVICE void init(const void* barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(near(barrier)), "r"(count)
                 : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

DEVICE void expect(const void* barrier, unsigned bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(near(barrier)),
        "r"(bytes)
        : "memory");
}

DEVICE void wait_for(const void* barrier, unsigned parity) {
    asm volatile(
        "{ .reg .pred p; again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], "
        "%1;"
        " @!p bra again; }" ::"r"(near(barrier)),
        "r"(parity)
        : "memory");
}
