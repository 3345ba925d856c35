// ld and st with every cache operator, order and scope: one row for each pair of them.

typedef unsigned int u32;

#define COPY(load, store)                                                                 \
    do {                                                                                  \
        u32 x;                                                                            \
        asm volatile(load " %0, [%1];" : "=r"(x) : "l"(in + i) : "memory");               \
        asm volatile(store " [%0], %1;" ::"l"(out + row++ * blockDim.x + i), "r"(x + row) \
                     : "memory");                                                         \
    } while (0)

extern "C" __global__ void memory_modifiers(const u32* in, u32* out) {
    const u32 i = threadIdx.x;
    u32 row = 0;
    COPY("ld.global.u32", "st.global.u32");
    COPY("ld.u32", "st.u32");
    COPY("ld.weak.global.u32", "st.weak.global.u32");
    COPY("ld.global.ca.u32", "st.global.wb.u32");
    COPY("ld.global.cg.u32", "st.global.cg.u32");
    COPY("ld.global.cs.u32", "st.global.cs.u32");
    COPY("ld.global.lu.u32", "st.global.wt.u32");
    COPY("ld.global.cv.u32", "st.global.wt.u32");
    COPY("ld.global.nc.u32", "st.global.u32");
    COPY("ld.volatile.global.u32", "st.volatile.global.u32");
    COPY("ld.relaxed.cta.global.u32", "st.relaxed.cta.global.u32");
    COPY("ld.relaxed.gpu.global.u32", "st.relaxed.gpu.global.u32");
    COPY("ld.relaxed.sys.global.u32", "st.relaxed.sys.global.u32");
    COPY("ld.acquire.cta.global.u32", "st.release.cta.global.u32");
    COPY("ld.acquire.gpu.global.u32", "st.release.gpu.global.u32");
    COPY("ld.acquire.sys.global.u32", "st.release.sys.global.u32");
    COPY("ld.mmio.relaxed.sys.global.u32", "st.mmio.relaxed.sys.global.u32");
    COPY("ld.global.L1::evict_last.u32", "st.global.L1::evict_last.u32");
    COPY("ld.global.L1::no_allocate.u32", "st.global.L1::no_allocate.u32");
    COPY("ld.global.L2::64B.u32", "st.global.u32");
    COPY("ld.global.L1::evict_first.L2::128B.u32", "st.global.L1::evict_first.u32");
    COPY("ld.global.nc.L1::no_allocate.L2::256B.u32", "st.global.L1::evict_unchanged.u32");
    asm volatile("prefetch.global.L1 [%0];" ::"l"(in + i));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(in + i));
    asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(in + i));
    asm volatile("prefetchu.L1 [%0];" ::"l"(in + i));
    asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(in));
    asm volatile("nanosleep.u32 20;");
    asm volatile("membar.cta; membar.gl; membar.sys;" ::: "memory");
    asm volatile("fence.acq_rel.cta; fence.acq_rel.gpu; fence.sc.gpu; fence.sc.sys;" ::: "memory");
    asm volatile("fence.proxy.alias;" ::: "memory");
    asm volatile("pmevent 1;");
    asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::: "memory");
    COPY("ldu.global.u32", "st.global.u32");
}
