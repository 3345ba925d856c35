// ld and st of every width in another block, and each kind of atom and red there.
#include "cluster.cuh"

__global__ void cluster_loads(const unsigned* in, unsigned* out, unsigned* cells_out,
                              float* floats_out) {
    __shared__ alignas(16) unsigned given[128], taken[128];
    __shared__ unsigned cells[12];
    __shared__ unsigned long long wide;
    __shared__ float sum;
    unsigned t = threadIdx.x, next = (rank() + 1) % blocks();
    given[t] = in[blockIdx.x * 128 + t];
    if (t < 12) cells[t] = 5;
    if (t == 0) wide = 7, sum = 0.5f;
    taken[t] = 0;
    meet();
    unsigned from = far(given, next), to = far(taken, next);
    if (t < 32) {
        unsigned a, b, c, d;
        asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(from + 16 * t)
                     : "memory");
        asm volatile("st.shared::cluster.v2.u32 [%0], {%1, %2};" ::"r"(to + 8 * t), "r"(a + b),
                     "r"(c ^ d)
                     : "memory");
    } else if (t < 64) {
        unsigned short half;
        asm volatile("ld.shared::cluster.u16 %0, [%1];"
                     : "=h"(half)
                     : "r"(from + 2 * t)
                     : "memory");
        asm volatile("st.shared::cluster.u16 [%0], %1;" ::"r"(to + 256 + 2 * (t - 32)), "h"(half)
                     : "memory");
    } else if (t < 96) {
        unsigned long long pair;
        asm volatile("ld.shared::cluster.u64 %0, [%1];"
                     : "=l"(pair)
                     : "r"(from + 8 * (t - 32))
                     : "memory");
        asm volatile("st.relaxed.cluster.shared::cluster.u32 [%0], %1;" ::"r"(to + 64 + 4 * t),
                     "r"((unsigned)(pair >> 16))
                     : "memory");
    }
    unsigned c = far(cells, next), old, first = t == 0;
    asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], %1;" ::"r"(c), "r"(t)
                 : "memory");
    asm volatile("red.relaxed.cluster.shared::cluster.min.s32 [%0], %1;" ::"r"(c + 4), "r"(-(int)t)
                 : "memory");
    asm volatile("red.relaxed.cluster.shared::cluster.max.u32 [%0], %1;" ::"r"(c + 8), "r"(t * 3)
                 : "memory");
    asm volatile("red.relaxed.cluster.shared::cluster.xor.b32 [%0], %1;" ::"r"(c + 12), "r"(t * t)
                 : "memory");
    asm volatile("red.relaxed.cluster.shared::cluster.or.b32 [%0], %1;" ::"r"(c + 16),
                 "r"(1 << t % 32)
                 : "memory");
    asm volatile("red.relaxed.cluster.shared::cluster.and.b32 [%0], %1;" ::"r"(c + 20),
                 "r"(~(1 << t % 2))
                 : "memory");
    asm volatile("red.relaxed.cluster.shared::cluster.inc.u32 [%0], %1;" ::"r"(c + 24), "r"(100)
                 : "memory");
    asm volatile("red.relaxed.cluster.shared::cluster.dec.u32 [%0], %1;" ::"r"(c + 28), "r"(100)
                 : "memory");
    asm volatile("red.relaxed.cluster.shared::cluster.add.u64 [%0], %1;" ::"r"(far(&wide, next)),
                 "l"(1ull << 32)
                 : "memory");
    asm volatile("red.relaxed.cluster.shared::cluster.add.f32 [%0], %1;" ::"r"(far(&sum, next)),
                 "f"((float)t)
                 : "memory");
    if (first) {
        asm volatile("atom.relaxed.cluster.shared::cluster.exch.b32 %0, [%1], %2;"
                     : "=r"(old)
                     : "r"(c + 32), "r"(rank() + 40)
                     : "memory");
        out[blockIdx.x * 130 + 128] = old;
        asm volatile("atom.acq_rel.cluster.shared::cluster.cas.b32 %0, [%1], %2, %3;"
                     : "=r"(old)
                     : "r"(c + 36), "r"(5), "r"(rank() + 60)
                     : "memory");
        out[blockIdx.x * 130 + 129] = old;
    }
    meet();
    out[blockIdx.x * 130 + t] = taken[t];
    if (t < 12) cells_out[blockIdx.x * 14 + t] = cells[t];
    if (t == 0)
        cells_out[blockIdx.x * 14 + 12] = wide, cells_out[blockIdx.x * 14 + 13] = wide >> 32;
    if (t == 0) floats_out[blockIdx.x] = sum;
}
