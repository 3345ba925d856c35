// atom and red of f32 and f64; a cell for each thread, so one addition each.

#include "atomics.cuh"

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
}
