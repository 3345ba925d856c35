// atom and red of halves, alone and in pairs.

#include "atomics.cuh"

SPELLED(atomic_halves) {
    OPERANDS;
    CELLS;
    ATOM_SHARED("atom.shared.add.noftz.f16", u16);
    ATOM_SHARED("atom.shared.add.noftz.f16x2", u32);
    ATOM_SHARED("atom.shared.add.noftz.bf16", u16);
    ATOM_SHARED("atom.shared.add.noftz.bf16x2", u32);
    RED_SHARED("red.shared.add.noftz.f16", u16);
    RED_SHARED("red.shared.add.noftz.f16x2", u32);
    RED_SHARED("red.shared.add.noftz.bf16", u16);
    RED_SHARED("red.shared.add.noftz.bf16x2", u32);
    ATOM_GLOBAL("atom.global.add.noftz.f16", u16);
    ATOM_GLOBAL("atom.global.add.noftz.f16x2", u32);
    ATOM_GLOBAL("atom.global.add.noftz.bf16", u16);
    ATOM_GLOBAL("atom.global.add.noftz.bf16x2", u32);
    RED_GLOBAL("red.global.add.noftz.f16", u16);
    RED_GLOBAL("red.global.add.noftz.f16x2", u32);
    RED_GLOBAL("red.global.add.noftz.bf16", u16);
    RED_GLOBAL("red.global.add.noftz.bf16x2", u32);
}
