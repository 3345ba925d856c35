// Atomics by their spelling: each thread has a cell of its own that holds a, and updates it by b.
//
// atom stores two rows: the cell afterwards, and what the instruction found. red stores the cell.
// In global memory the cell is the row itself.

#pragma once

#include "spellings.cuh"

#define CELLS                  \
    __shared__ u64 cells[512]; \
    [[maybe_unused]] const u32 cell = (u32)__cvta_generic_to_shared(&cells[i])

#define ATOM_SHARED(spelling, W)                     \
    do {                                             \
        W d;                                         \
        cells[i] = a;                                \
        asm volatile(spelling " %0, [%1], %2;"       \
                     : "=" REGISTER_##W(d)           \
                     : "r"(cell), REGISTER_##W((W)b) \
                     : "memory");                    \
        STORE(cells[i]);                             \
        STORE(d);                                    \
    } while (0)

#define RED_SHARED(spelling, W)                                                         \
    do {                                                                                \
        cells[i] = a;                                                                   \
        asm volatile(spelling " [%0], %1;" ::"r"(cell), REGISTER_##W((W)b) : "memory"); \
        STORE(cells[i]);                                                                \
    } while (0)

// Half of the threads expect what is there, the others expect c.
#define CAS_SHARED(spelling, W)                                                        \
    do {                                                                               \
        W d;                                                                           \
        cells[i] = a;                                                                  \
        asm volatile(spelling " %0, [%1], %2, %3;"                                     \
                     : "=" REGISTER_##W(d)                                             \
                     : "r"(cell), REGISTER_##W((W)(low_b ? a : c)), REGISTER_##W((W)b) \
                     : "memory");                                                      \
        STORE(cells[i]);                                                               \
        STORE(d);                                                                      \
    } while (0)

#define ATOM_GLOBAL(spelling, W)                      \
    do {                                              \
        W d;                                          \
        u64* const mine = &out[row * blockDim.x + i]; \
        STORE(a);                                     \
        asm volatile(spelling " %0, [%1], %2;"        \
                     : "=" REGISTER_##W(d)            \
                     : "l"(mine), REGISTER_##W((W)b)  \
                     : "memory");                     \
        STORE(d);                                     \
    } while (0)

#define RED_GLOBAL(spelling, W)                                                         \
    do {                                                                                \
        u64* const mine = &out[row * blockDim.x + i];                                   \
        STORE(a);                                                                       \
        asm volatile(spelling " [%0], %1;" ::"l"(mine), REGISTER_##W((W)b) : "memory"); \
    } while (0)

#define CAS_GLOBAL(spelling, W)                                                        \
    do {                                                                               \
        W d;                                                                           \
        u64* const mine = &out[row * blockDim.x + i];                                  \
        STORE(a);                                                                      \
        asm volatile(spelling " %0, [%1], %2, %3;"                                     \
                     : "=" REGISTER_##W(d)                                             \
                     : "l"(mine), REGISTER_##W((W)(low_b ? a : c)), REGISTER_##W((W)b) \
                     : "memory");                                                      \
        STORE(d);                                                                      \
    } while (0)
