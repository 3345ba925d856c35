// Loads of 8 and 16 bits into wider registers, and stores of a register's low bits.

typedef unsigned int u32;

#define NARROW(type, offset)                                                                  \
    do {                                                                                      \
        u32 x;                                                                                \
        long long y;                                                                          \
        asm volatile("ld.global." type " %0, [%1+" #offset "];" : "=r"(x) : "l"(in + 4 * i)); \
        asm volatile("ld.global." type " %0, [%1+" #offset "];" : "=l"(y) : "l"(in + 4 * i)); \
        out[row++ * blockDim.x + i] = x;                                                      \
        out[row++ * blockDim.x + i] = (u32)(y >> 32);                                         \
    } while (0)

#define CUT(type, offset, letter, value)                                                    \
    asm volatile("st.global." type " [%0+" #offset "], %1;" ::"l"(words + i), letter(value) \
                 : "memory")

extern "C" __global__ void memory_extension(const char* in, u32* out, u32* words) {
    const u32 i = threadIdx.x;
    u32 row = 0;
    NARROW("u8", 0);
    NARROW("s8", 1);
    NARROW("b8", 3);
    NARROW("u16", 0);
    NARROW("s16", 2);
    NARROW("b16", 2);
    const u32 value = out[i] * 0x01234567u + i;
    CUT("u8", 0, "r", value);
    CUT("s8", 1, "l", (long long)value << 3);
    CUT("b16", 2, "r", value);
}
