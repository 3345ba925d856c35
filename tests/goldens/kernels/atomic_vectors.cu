// Vectors of floats added to global memory by one red, which compute capability 9.0 has.

extern "C" __global__ void atomic_vectors(const float* in, float* cells, unsigned* halves) {
    const int i = threadIdx.x;
    float* mine = cells + 4 * i;
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(mine), "f"(in[4 * i]),
                 "f"(in[4 * i + 1]), "f"(in[4 * i + 2]), "f"(in[4 * i + 3])
                 : "memory");
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(mine), "f"(in[4 * i + 3]),
                 "f"(in[4 * i])
                 : "memory");
    asm volatile("red.global.add.noftz.v2.f16x2 [%0], {%1, %2};" ::"l"(halves + 2 * i),
                 "r"(0x3c004000u), "r"(0x2e664248u)
                 : "memory");
}
