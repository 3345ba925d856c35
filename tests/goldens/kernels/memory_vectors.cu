// ld and st of two and four elements at once, of every width, in global and shared memory.
//
// Each use copies blockDim.x vectors through shared memory, where the elements change places.

typedef unsigned int u32;

#define COPY2(type, letter, T)                                                                     \
    do {                                                                                           \
        T x, y;                                                                                    \
        const long long at = start + threadIdx.x * 2 * sizeof(T);                                  \
        asm volatile("ld.global.v2." type " {%0, %1}, [%2];"                                       \
                     : "=" letter(x), "=" letter(y)                                                \
                     : "l"(in + at));                                                              \
        asm volatile("st.shared.v2." type " [%0], {%1, %2};" ::"r"(cell), letter(y), letter(x)     \
                     : "memory");                                                                  \
        asm volatile("ld.shared.v2." type " {%0, %1}, [%2];"                                       \
                     : "=" letter(x), "=" letter(y)                                                \
                     : "r"(cell)                                                                   \
                     : "memory");                                                                  \
        asm volatile("st.global.v2." type " [%0], {%1, %2};" ::"l"(out + at), letter(x), letter(y) \
                     : "memory");                                                                  \
        start += blockDim.x * 2 * sizeof(T);                                                       \
    } while (0)

#define COPY4(type, letter, T)                                                                   \
    do {                                                                                         \
        T x, y, z, w;                                                                            \
        const long long at = start + threadIdx.x * 4 * sizeof(T);                                \
        asm volatile("ld.global.v4." type " {%0, %1, %2, %3}, [%4];"                             \
                     : "=" letter(x), "=" letter(y), "=" letter(z), "=" letter(w)                \
                     : "l"(in + at));                                                            \
        asm volatile("st.shared.v4." type " [%0], {%1, %2, %3, %4};" ::"r"(cell), letter(w),     \
                     letter(z), letter(y), letter(x)                                             \
                     : "memory");                                                                \
        asm volatile("ld.shared.v4." type " {%0, %1, %2, %3}, [%4];"                             \
                     : "=" letter(x), "=" letter(y), "=" letter(z), "=" letter(w)                \
                     : "r"(cell)                                                                 \
                     : "memory");                                                                \
        asm volatile("st.global.v4." type " [%0], {%1, %2, %3, %4};" ::"l"(out + at), letter(x), \
                     letter(y), letter(z), letter(w)                                             \
                     : "memory");                                                                \
        start += blockDim.x * 4 * sizeof(T);                                                     \
    } while (0)

extern "C" __global__ void memory_vectors(const char* in, char* out) {
    __shared__ uint4 cells[64];
    const u32 cell = (u32)__cvta_generic_to_shared(&cells[threadIdx.x]);
    long long start = 0;
    COPY2("u16", "h", short);
    COPY2("b16", "h", short);
    COPY2("s32", "r", int);
    COPY2("f32", "f", float);
    COPY2("u64", "l", long long);
    COPY2("f64", "d", double);
    COPY4("s16", "h", short);
    COPY4("b32", "r", int);
    COPY4("f32", "f", float);
}
