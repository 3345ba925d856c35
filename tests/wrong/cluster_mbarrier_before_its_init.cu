// An arrival at another block's mbarrier, which that block may not have initialised yet.
#include "cluster.cuh"

__global__ void hand_over(const int* x, int* out) {
    __shared__ alignas(8) unsigned long long full;
    __shared__ int box[32];
    int t = threadIdx.x, other = rank() ^ 1;
    if (t == 0)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" ::"r"(near(&full))  // OTHER
                     : "memory");
#ifdef FIXED
    MEET();
#else
    __syncthreads();
#endif
    int value = x[blockIdx.x * 32 + t];
    asm volatile("st.shared::cluster.s32 [%0], %1;" ::"r"(far(box + t, other)), "r"(value)
                 : "memory");
    ARRIVE(&full, other);  // FAULT: race
#ifdef FIXED
    WAIT(&full, 0);
#else
    MEET();
#endif
    out[blockIdx.x * 32 + t] = box[31 - t];
    MEET();
}
