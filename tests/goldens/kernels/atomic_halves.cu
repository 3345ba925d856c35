// atom and red of halves, alone and in pairs.

#include "atomics.cuh"

SPELLED(atomic_halves) {
    // b has 32 bits from the start: of a pair that is cut from 64 bits, the code that ptxas 13.0
    // makes for atom and red in shared memory adds bits 32 to 47 where it should add the upper
    // half.
    const u32 i = threadIdx.x, b = reinterpret_cast<const u32*>(bs)[2 * i];
    const u64 a = as[i];
    u32 row = 0;
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
