// atom and red of integers in shared memory: for atom the new value, then what was there.

#include "atomics.cuh"

SPELLED(atomic_shared) {
    OPERANDS;
    CELLS;
    ATOM_SHARED("atom.shared.add.u32", u32);
    ATOM_SHARED("atom.shared.add.s32", u32);
    ATOM_SHARED("atom.shared.add.u64", u64);
    ATOM_SHARED("atom.shared.min.u32", u32);
    ATOM_SHARED("atom.shared.min.s32", u32);
    ATOM_SHARED("atom.shared.min.u64", u64);
    ATOM_SHARED("atom.shared.min.s64", u64);
    ATOM_SHARED("atom.shared.max.u32", u32);
    ATOM_SHARED("atom.shared.max.s32", u32);
    ATOM_SHARED("atom.shared.max.u64", u64);
    ATOM_SHARED("atom.shared.max.s64", u64);
    ATOM_SHARED("atom.shared.and.b32", u32);
    ATOM_SHARED("atom.shared.and.b64", u64);
    ATOM_SHARED("atom.shared.or.b32", u32);
    ATOM_SHARED("atom.shared.or.b64", u64);
    ATOM_SHARED("atom.shared.xor.b32", u32);
    ATOM_SHARED("atom.shared.xor.b64", u64);
    ATOM_SHARED("atom.shared.inc.u32", u32);
    ATOM_SHARED("atom.shared.dec.u32", u32);
    ATOM_SHARED("atom.shared.exch.b32", u32);
    ATOM_SHARED("atom.shared.exch.b64", u64);
    CAS_SHARED("atom.shared.cas.b16", u16);
    CAS_SHARED("atom.shared.cas.b32", u32);
    CAS_SHARED("atom.shared.cas.b64", u64);
    RED_SHARED("red.shared.add.u32", u32);
    RED_SHARED("red.shared.add.s32", u32);
    RED_SHARED("red.shared.add.u64", u64);
    RED_SHARED("red.shared.min.u32", u32);
    RED_SHARED("red.shared.min.s32", u32);
    RED_SHARED("red.shared.min.u64", u64);
    RED_SHARED("red.shared.min.s64", u64);
    RED_SHARED("red.shared.max.u32", u32);
    RED_SHARED("red.shared.max.s32", u32);
    RED_SHARED("red.shared.max.u64", u64);
    RED_SHARED("red.shared.max.s64", u64);
    RED_SHARED("red.shared.and.b32", u32);
    RED_SHARED("red.shared.and.b64", u64);
    RED_SHARED("red.shared.or.b32", u32);
    RED_SHARED("red.shared.or.b64", u64);
    RED_SHARED("red.shared.xor.b32", u32);
    RED_SHARED("red.shared.xor.b64", u64);
    RED_SHARED("red.shared.inc.u32", u32);
    RED_SHARED("red.shared.dec.u32", u32);
}
