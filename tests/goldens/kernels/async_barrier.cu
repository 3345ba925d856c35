// mbarrier: arrivals, phases, transactions of cp.async and cp.async.bulk, tests and waits.

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ void wait(u32 barrier, u32 parity) {
    asm volatile(
        "{.reg .pred p;\n"
        "again:\n"
        " mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        " @!p bra again;}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

extern "C" __global__ void async_barrier(const u32* in, u32* out, u32* back) {
    __shared__ __align__(16) u32 tile[256];
    __shared__ __align__(8) u64 barriers[2];
    const u32 i = threadIdx.x;
    const u32 first = (u32)__cvta_generic_to_shared(&barriers[0]), second = first + 8;
    const u32 at = (u32)__cvta_generic_to_shared(tile);
    if (i == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(first) : "memory");
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(second) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    tile[i] = in[i];  // phase 0 of the first: every thread arrives, and waits for what it was given
    u64 state;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(first) : "memory");
    u32 done = 0;
    while (!done) {
        asm volatile(
            "{.reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
            : "=r"(done)
            : "r"(first), "l"(state)
            : "memory");
    }
    out[i] = tile[63 - i];

    __syncthreads();  // phase 1: copies of each thread's own arrive in its place
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at + 4 * i), "l"(in + 64 + i)
                 : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(first) : "memory");
    wait(first, 1);
    out[64 + i] = tile[(i + 7) % 64];

    __syncthreads();  // the second barrier: bytes that one bulk copy brings
    if (i == 0) {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 1024;" ::"r"(second)
                     : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, "
            "[%2];" ::"r"(at),
            "l"(in), "r"(second)
            : "memory");
    }
    wait(second, 0);
    for (u32 k = 0; k < 4; ++k) out[128 + 64 * k + i] = tile[255 - 64 * k - i];

    __syncthreads();  // and back, in a bulk group
    tile[i] += 1000;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (i == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;" ::"l"(back),
                     "r"(at)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(second) : "memory");
    }
}
