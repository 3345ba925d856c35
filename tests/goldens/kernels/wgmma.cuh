// wgmma by its spelling, on raw registers and raw bytes of shared memory: the layouts of fragments
// and of matrices in shared memory are part of the test.
//
// Registers are held thread by thread: register r of thread t at [R t + r], R being their count.

#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

#define NAMES_2(p) p "0," p "1"
#define NAMES_4(p) NAMES_2(p) "," p "2," p "3"
#define NAMES_16(p) NAMES_4(p "0") "," NAMES_4(p "1") "," NAMES_4(p "2") "," NAMES_4(p "3")
#define NAMES_64(p) NAMES_16(p "0") "," NAMES_16(p "1") "," NAMES_16(p "2") "," NAMES_16(p "3")
#define NAMES_6(p) NAMES_4(p "0") "," NAMES_2(p "1")
#define NAMES_12(p) NAMES_4(p "0") "," NAMES_4(p "1") "," NAMES_4(p "2")
#define NAMES_68(p) NAMES_64(p "0") "," NAMES_4(p "1")
#define NAMES_128(p) NAMES_64(p "0") "," NAMES_64(p "1")

#define LOAD_2(p) "ld.global.v2.b32 {" NAMES_2(p) "}, [at];\nadd.u64 at, at, 8;\n"
#define LOAD_4(p) "ld.global.v4.b32 {" NAMES_4(p) "}, [at];\nadd.u64 at, at, 16;\n"
#define LOAD_16(p) LOAD_4(p "0") LOAD_4(p "1") LOAD_4(p "2") LOAD_4(p "3")
#define LOAD_64(p) LOAD_16(p "0") LOAD_16(p "1") LOAD_16(p "2") LOAD_16(p "3")
#define LOAD_6(p)                  \
    "ld.global.v2.b32 {" p "00," p \
    "01}, [at];\n"                 \
    "ld.global.v2.b32 {" p "02," p \
    "03}, [at + 8];\n"             \
    "ld.global.v2.b32 {" p "10," p "11}, [at + 16];\n"
#define LOAD_12(p) LOAD_4(p "0") LOAD_4(p "1") LOAD_4(p "2")
#define LOAD_68(p) LOAD_64(p "0") LOAD_4(p "1")
#define LOAD_128(p) LOAD_64(p "0") LOAD_64(p "1")

#define STORE_2(p) "st.global.v2.b32 [at], {" NAMES_2(p) "};\nadd.u64 at, at, 8;\n"
#define STORE_4(p) "st.global.v4.b32 [at], {" NAMES_4(p) "};\nadd.u64 at, at, 16;\n"
#define STORE_16(p) STORE_4(p "0") STORE_4(p "1") STORE_4(p "2") STORE_4(p "3")
#define STORE_64(p) STORE_16(p "0") STORE_16(p "1") STORE_16(p "2") STORE_16(p "3")
#define STORE_6(p)                           \
    "st.global.v2.b32 [at], {" p "00," p     \
    "01};\n"                                 \
    "st.global.v2.b32 [at + 8], {" p "02," p \
    "03};\n"                                 \
    "st.global.v2.b32 [at + 16], {" p "10," p "11};\n"
#define STORE_12(p) STORE_4(p "0") STORE_4(p "1") STORE_4(p "2")
#define STORE_68(p) STORE_64(p "0") STORE_4(p "1")
#define STORE_128(p) STORE_64(p "0") STORE_64(p "1")

// D = A B + D with R accumulators a thread, in a kernel that has what `Operands` holds as `given`.
// `left` is `FROM_SHARED` or `FROM_REGISTERS`; `tail` is what follows the predicate of scale-d.
#define FROM_SHARED "%0"
#define FROM_REGISTERS "{a0, a1, a2, a3}"
#define MULTIPLY(R, spelling, left, tail)                                                           \
    do {                                                                                            \
        asm volatile("{.reg .b32 " NAMES_##R("d") ";\n.reg .b32 a<4>;\n.reg .b64 at;\n"           \
                     ".reg .pred adds;\n"                                                         \
                     "setp.ne.u32 adds, %4, 0;\n"                                                 \
                     "mov.u64 at, %2;\n" LOAD_##R("d")                                            \
                     "ld.global.v4.b32 {a0, a1, a2, a3}, [%3];\n"                                 \
                     "wgmma.fence.sync.aligned;\n"                                                \
                     "wgmma.mma_async.sync.aligned." spelling " {" NAMES_##R("d") "}, " left      \
                     ", %1, adds" tail ";\n"                                                      \
                     "wgmma.commit_group.sync.aligned;\n"                                         \
                     "wgmma.wait_group.sync.aligned 0;\n"                                         \
                     "mov.u64 at, %5;\n" STORE_##R("d") "}" ::"l"(given.a),                       \
                     "l"(given.b), "l"(given.c + R * threadIdx.x),                                \
                     "l"(given.fragment + 4 * threadIdx.x), "r"(given.adds),                      \
                     "l"(given.out + R * threadIdx.x)                                             \
                     : "memory"); \
        given.out += 128 * R;                                                                       \
    } while (0)

struct Operands {
    u64 a, b;             // descriptors
    const u32* c;         // accumulators
    const u32* fragment;  // A in registers
    u32 adds;             // scale-d
    u32* out;
};

// The descriptor of a matrix without a swizzle.
__device__ u64 matrix_at(u32 address, u32 leading, u32 stride) {
    return address >> 4 & 0x3FFF | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32;
}

// Fills shared memory, and makes it visible to wgmma.
__device__ void fill(u32* tile, const u32* from, u32 words) {
    for (u32 i = threadIdx.x; i < words; i += 128) tile[i] = from[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

// A of 64 rows, then B, each as 8 rows by 16 bytes: two of them side by side in K, 256 bytes to the
// next rows.
__device__ Operands operands(const u32* tile, const u32* c, const u32* fragment, void* out) {
    const u32 at = (u32)__cvta_generic_to_shared(tile);
    return {matrix_at(at, 128, 256), matrix_at(at + 2048, 128, 256), c, fragment, 1, (u32*)out};
}
