// st.async and red.async into another block, each of which completes transactions of an mbarrier
// there.
#include "cluster.cuh"

__global__ void cluster_async(unsigned* out, float* floats_out) {
    __shared__ alignas(8) unsigned long long arrived;
    __shared__ alignas(16) unsigned words[32 * 12];
    __shared__ alignas(16) float floats[32 * 4];
    __shared__ unsigned long long sums[2];
    __shared__ unsigned cells[12];
    unsigned t = threadIdx.x, next = (rank() + 1) % blocks(), r = rank();
    if (t < 12) cells[t] = 40 + t;
    if (t < 2) sums[t] = t;
    if (t == 0) {
        init(&arrived, 1);
        expect(&arrived, 32 * (4 + 8 + 8 + 16 + 16 + 9 * 4 + 8));
    }
    meet();
    unsigned at = far(&arrived, next), w = far(words, next) + 48 * t,
             f = far(floats, next) + 16 * t;
#define ASYNC ".mbarrier::complete_tx::bytes.shared::cluster"
    asm volatile("st.async" ASYNC ".b32 [%0], %1, [%2];" ::"r"(w), "r"(t + 1000 * r), "r"(at)
                 : "memory");
    asm volatile("st.async" ASYNC ".v2.u32 [%0], {%1, %2}, [%3];" ::"r"(w + 8), "r"(t * 3),
                 "r"(t ^ r), "r"(at)
                 : "memory");
    asm volatile("st.async" ASYNC ".b64 [%0], %1, [%2];" ::"r"(w + 16), "l"((t + 7ull) << 30),
                 "r"(at)
                 : "memory");
    asm volatile("st.async" ASYNC ".v2.s64 [%0], {%1, %2}, [%3];" ::"r"(w + 32), "l"(1ll * t),
                 "l"(-1ll * t), "r"(at)
                 : "memory");
    asm volatile("st.async" ASYNC ".v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(f), "f"(t + 0.5f),
                 "f"(r + 0.25f), "f"(t * 2.0f), "f"(-1.0f), "r"(at)
                 : "memory");
    unsigned c = far(cells, next), s = far(sums, next);
#define RED "red.async.relaxed.cluster" ASYNC
    asm volatile(RED ".add.u32 [%0], %1, [%2];" ::"r"(c), "r"(t), "r"(at) : "memory");
    asm volatile(RED ".add.s32 [%0], %1, [%2];" ::"r"(c + 4), "r"(-(int)t), "r"(at) : "memory");
    asm volatile(RED ".min.u32 [%0], %1, [%2];" ::"r"(c + 8), "r"(t), "r"(at) : "memory");
    asm volatile(RED ".max.s32 [%0], %1, [%2];" ::"r"(c + 12), "r"(t * 9), "r"(at) : "memory");
    asm volatile(RED ".inc.u32 [%0], %1, [%2];" ::"r"(c + 16), "r"(60), "r"(at) : "memory");
    asm volatile(RED ".dec.u32 [%0], %1, [%2];" ::"r"(c + 20), "r"(60), "r"(at) : "memory");
    asm volatile(RED ".and.b32 [%0], %1, [%2];" ::"r"(c + 24), "r"(~(1u << t % 4)), "r"(at)
                 : "memory");
    asm volatile(RED ".or.b32 [%0], %1, [%2];" ::"r"(c + 28), "r"(1u << t), "r"(at) : "memory");
    asm volatile(RED ".xor.b32 [%0], %1, [%2];" ::"r"(c + 32), "r"(t * 5), "r"(at) : "memory");
    asm volatile(RED ".add.u64 [%0], %1, [%2];" ::"r"(s), "l"((1ull << 33) + t), "r"(at)
                 : "memory");
    wait_for(&arrived, 0);
    const int places[] = {0, 2, 3, 4, 5, 8, 9, 10, 11};
    for (int k = 0; k < 9; ++k) out[blockIdx.x * 300 + 32 * k + t] = words[12 * t + places[k]];
    if (t < 9) out[blockIdx.x * 300 + 288 + t] = cells[t];
    if (t < 2) out[blockIdx.x * 300 + 297 + t] = sums[0] >> 32 * t;
    if (t == 0) out[blockIdx.x * 300 + 299] = sums[1];
    for (int k = 0; k < 4; ++k) floats_out[(blockIdx.x * 32 + t) * 4 + k] = floats[4 * t + k];
    meet();
}
