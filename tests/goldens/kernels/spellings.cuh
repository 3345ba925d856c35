// Instructions by their spelling: each macro runs one of them on a thread's operands.
//
//     out[row][i] = instruction(a[i], b[i], c[i])        one row for each use of a macro
//
// Operands and results are bits in 64-bit words, cut to the width that the macro names. A row's
// name is the spelling in the macro's first argument, which the tests read out of the kernel's
// source; so a line holds one use, and uses stand in no loop and no branch.

#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The letter of inline asm for a register of each width.
#define REGISTER_u16 "h"
#define REGISTER_u32 "r"
#define REGISTER_u64 "l"

#define SPELLED(name)                                                                       \
    extern "C" __global__ void name(const u64* __restrict__ as, const u64* __restrict__ bs, \
                                    const u64* __restrict__ cs, u64* __restrict__ out)

#define OPERANDS                                                       \
    const u32 i = threadIdx.x;                                         \
    [[maybe_unused]] const u64 a = as[i], b = bs[i], c = cs[i];        \
    [[maybe_unused]] const u32 low_a = (u32)a & 1, low_b = (u32)b & 1; \
    [[maybe_unused]] const u32 low_c = (u32)c & 1;                     \
    u32 row = 0

#define STORE(value) out[row++ * blockDim.x + i] = (value)

#define UNARY(spelling, D, A)                                                         \
    do {                                                                              \
        D d;                                                                          \
        asm volatile(spelling " %0, %1;" : "=" REGISTER_##D(d) : REGISTER_##A((A)a)); \
        STORE(d);                                                                     \
    } while (0)

#define BINARY(spelling, D, A, B)                               \
    do {                                                        \
        D d;                                                    \
        asm volatile(spelling " %0, %1, %2;"                    \
                     : "=" REGISTER_##D(d)                      \
                     : REGISTER_##A((A)a), REGISTER_##B((B)b)); \
        STORE(d);                                               \
    } while (0)

#define TERNARY(spelling, D, A, B, C)                                               \
    do {                                                                            \
        D d;                                                                        \
        asm volatile(spelling " %0, %1, %2, %3;"                                    \
                     : "=" REGISTER_##D(d)                                          \
                     : REGISTER_##A((A)a), REGISTER_##B((B)b), REGISTER_##C((C)c)); \
        STORE(d);                                                                   \
    } while (0)

// The low byte of c, and the byte above it, as two more operands: bfi.
#define TWO_BYTES(spelling, D)                                                                 \
    do {                                                                                       \
        D d;                                                                                   \
        asm volatile(spelling " %0, %1, %2, %3, %4;"                                           \
                     : "=" REGISTER_##D(d)                                                     \
                     : REGISTER_##D((D)a), REGISTER_##D((D)b), "r"((u32)c), "r"((u32)c >> 8)); \
        STORE(d);                                                                              \
    } while (0)

// A literal after three operands: lop3.
#define WITH_LITERAL(spelling, literal)                        \
    do {                                                       \
        u32 d;                                                 \
        asm volatile(spelling " %0, %1, %2, %3, " #literal ";" \
                     : "=r"(d)                                 \
                     : "r"((u32)a), "r"((u32)b), "r"((u32)c)); \
        STORE(d);                                              \
    } while (0)

// A predicate of one or two operands, as 0 or 1.
#define TEST(spelling, A)                                                        \
    do {                                                                         \
        u32 d;                                                                   \
        asm volatile("{.reg .pred p; " spelling " p, %1; selp.u32 %0, 1, 0, p;}" \
                     : "=r"(d)                                                   \
                     : REGISTER_##A((A)a));                                      \
        STORE(d);                                                                \
    } while (0)

#define COMPARE(spelling, A)                                                         \
    do {                                                                             \
        u32 d;                                                                       \
        asm volatile("{.reg .pred p; " spelling " p, %1, %2; selp.u32 %0, 1, 0, p;}" \
                     : "=r"(d)                                                       \
                     : REGISTER_##A((A)a), REGISTER_##A((A)b));                      \
        STORE(d);                                                                    \
    } while (0)

// Both predicates of a comparison, as two bits.
#define COMPARE_TWICE(spelling, A)                                   \
    do {                                                             \
        u32 d, e;                                                    \
        asm volatile("{.reg .pred p, q; " spelling                   \
                     " p|q, %2, %3;"                                 \
                     " selp.u32 %0, 1, 0, p; selp.u32 %1, 2, 0, q;}" \
                     : "=r"(d), "=r"(e)                              \
                     : REGISTER_##A((A)a), REGISTER_##A((A)b));      \
        STORE(d | e);                                                \
    } while (0)

// The same, combined with c's lowest bit.
#define COMPARE_AND_COMBINE(spelling, A)                                    \
    do {                                                                    \
        u32 d, e;                                                           \
        asm volatile("{.reg .pred p, q, r; setp.ne.u32 r, %4, 0; " spelling \
                     " p|q, %2, %3, r;"                                     \
                     " selp.u32 %0, 1, 0, p; selp.u32 %1, 2, 0, q;}"        \
                     : "=r"(d), "=r"(e)                                     \
                     : REGISTER_##A((A)a), REGISTER_##A((A)b), "r"(low_c)); \
        STORE(d | e);                                                       \
    } while (0)

// A value chosen, or made, by c's lowest bit: selp, and set with a boolean operator.
#define BY_BIT(spelling, D, A)                                                           \
    do {                                                                                 \
        D d;                                                                             \
        asm volatile("{.reg .pred p; setp.ne.u32 p, %3, 0; " spelling " %0, %1, %2, p;}" \
                     : "=" REGISTER_##D(d)                                               \
                     : REGISTER_##A((A)a), REGISTER_##A((A)b), "r"(low_c));              \
        STORE(d);                                                                        \
    } while (0)

// Logic on predicates: the lowest bits of a and b.
#define ON_PREDICATES(spelling)                                                \
    do {                                                                       \
        u32 d;                                                                 \
        asm volatile(                                                          \
            "{.reg .pred p, q, r; setp.ne.u32 p, %1, 0; setp.ne.u32 q, %2, 0;" \
            " " spelling " r, p, q; selp.u32 %0, 1, 0, r;}"                    \
            : "=r"(d)                                                          \
            : "r"(low_a), "r"(low_b));                                         \
        STORE(d);                                                              \
    } while (0)

#define NOT_PREDICATE(spelling)                                          \
    do {                                                                 \
        u32 d;                                                           \
        asm volatile("{.reg .pred p, r; setp.ne.u32 p, %1, 0; " spelling \
                     " r, p;"                                            \
                     " selp.u32 %0, 1, 0, r;}"                           \
                     : "=r"(d)                                           \
                     : "r"(low_a));                                      \
        STORE(d);                                                        \
    } while (0)

// The mask a, from bit b (of 32), towards c set bits away, forwards or backwards: fns.
#define FIND_SET(spelling)                                                     \
    do {                                                                       \
        u32 d;                                                                 \
        asm volatile(spelling " %0, %1, %2, %3;"                               \
                     : "=r"(d)                                                 \
                     : "r"((u32)a), "r"((u32)b & 31), "r"((int)(c & 15) - 7)); \
        STORE(d);                                                              \
    } while (0)

// Logic of three words by a table, and whether any bit of it, with c's lowest bit, is set: lop3.
#define LOGIC_AND_PREDICATE(spelling, literal)                                    \
    do {                                                                          \
        u32 d, e;                                                                 \
        asm volatile("{.reg .pred p, q; setp.ne.u32 q, %5, 0; " spelling          \
                     " %0|p, %2, %3, %4, " #literal ", q; selp.u32 %1, 1, 0, p;}" \
                     : "=r"(d), "=r"(e)                                           \
                     : "r"((u32)a), "r"((u32)b), "r"((u32)c), "r"(low_c));        \
        STORE((u64)e << 32 | d);                                                  \
    } while (0)
