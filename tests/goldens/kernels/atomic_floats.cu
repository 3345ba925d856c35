// atom and red of f32 and f64; a cell for each thread, so one addition each.

#include "atomics.cuh"

#define ATOM_GENERIC(spelling, W)                         \
    do {                                                  \
        W d;                                              \
        cells[i] = a;                                     \
        asm volatile(spelling " %0, [%1], %2;"            \
                     : "=" REGISTER_##W(d)                \
                     : "l"(&cells[i]), REGISTER_##W((W)b) \
                     : "memory");                         \
        STORE(cells[i]);                                  \
        STORE(d);                                         \
    } while (0)

SPELLED(atomic_floats) {
    OPERANDS;
    CELLS;
    ATOM_SHARED("atom.shared.add.f32", u32);
    ATOM_SHARED("atom.shared.add.f64", u64);
    RED_SHARED("red.shared.add.f32", u32);
    RED_SHARED("red.shared.add.f64", u64);
    ATOM_GLOBAL("atom.global.add.f32", u32);
    ATOM_GLOBAL("atom.global.add.f64", u64);
    RED_GLOBAL("red.global.add.f32", u32);
    RED_GLOBAL("red.global.add.f64", u64);
    ATOM_GENERIC("atom.add.f32", u32);
    ATOM_GENERIC("atom.add.f64", u64);
    ATOM_GLOBAL("atom.add.f32", u32);
    ATOM_GLOBAL("atom.add.f64", u64);
    RED_GLOBAL("red.add.f32", u32);
    RED_GLOBAL("red.add.f64", u64);
    ATOM_SHARED("atom.shared::cluster.add.f32", u32);
    ATOM_SHARED("atom.shared::cluster.add.f64", u64);
    RED_SHARED("red.shared::cluster.add.f32", u32);
    RED_SHARED("red.shared::cluster.add.f64", u64);
}
