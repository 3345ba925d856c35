// mapa, getctarank and isspacep of addresses in every block of a cluster, and what lies there.
#include "cluster.cuh"

#define INSIDE(name, space)                                                              \
    DEVICE unsigned name(unsigned long long address) {                                   \
        unsigned is;                                                                     \
        asm volatile("{ .reg .pred p; isspacep." space " p, %1; selp.u32 %0, 1, 0, p; }" \
                     : "=r"(is)                                                          \
                     : "l"(address));                                                    \
        return is;                                                                       \
    }
INSIDE(in_block, "shared::cta")
INSIDE(in_cluster, "shared::cluster")
INSIDE(in_global, "global")
INSIDE(in_local, "local")

__global__ void cluster_addresses(unsigned* out) {
    __shared__ unsigned own[4];
    if (threadIdx.x < 4) own[threadIdx.x] = 100 * rank() + threadIdx.x;
    meet();
    unsigned to = threadIdx.x % blocks();
    unsigned* o = out + 12 * (blockIdx.x * blockDim.x + threadIdx.x);
    unsigned there = far(own, to), found;
    unsigned long long generic, plain = reinterpret_cast<unsigned long long>(own);
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(generic) : "l"(plain), "r"(to));
    asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(o[0]) : "r"(there));
    asm volatile("getctarank.u64 %0, %1;" : "=r"(o[1]) : "l"(generic));
    asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(o[2]) : "r"(near(own)));
    o[3] = in_block(generic) | in_cluster(generic) << 1;
    o[4] = in_block(plain) | in_cluster(plain) << 1;
    o[5] = in_global(generic) | in_local(generic) << 1;
    asm volatile("ld.shared::cluster.u32 %0, [%1+4];" : "=r"(found) : "r"(there) : "memory");
    o[6] = found;
    o[7] = reinterpret_cast<unsigned*>(generic)[2];
    // Of the block itself.
    unsigned again;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(again)
                 : "r"(near(own + 3)), "r"(rank()));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(o[8]) : "r"(again) : "memory");
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(o[9]) : "r"(near(own + 1)) : "memory");
    unsigned long long from_window;
    asm volatile("cvta.shared::cluster.u64 %0, %1;"
                 : "=l"(from_window)
                 : "l"((unsigned long long)there));
    o[10] = reinterpret_cast<unsigned*>(from_window)[3];
    o[11] = blocks();
    meet();
}
