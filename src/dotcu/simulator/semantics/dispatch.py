"""From an instruction to its step: the elementwise tables first, then those that touch more."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dotcu.simulator.machine.barriers import barriers
from dotcu.simulator.machine.state import Batch, InstructionStep
from dotcu.simulator.program.binding import MANY, Binding, counted, require
from dotcu.simulator.program.inlining import STACK_OPCODES, FlatInstruction
from dotcu.simulator.semantics.arithmetic.compare import COMPARE, bind_setp
from dotcu.simulator.semantics.arithmetic.convert import bind_cvt
from dotcu.simulator.semantics.arithmetic.float import FLOAT, HALF
from dotcu.simulator.semantics.arithmetic.integer import (
    BIT_FIELDS,
    BYTES,
    INTEGER,
    LOGIC,
    PAIRS,
    VIDEO,
    bind_carry,
    bind_lop3,
    checked_division,
)
from dotcu.simulator.semantics.async_copy.cp_async import bind_async_store, bind_async_update, bind_cp
from dotcu.simulator.semantics.async_copy.mbarrier import bind_mbarrier
from dotcu.simulator.semantics.async_copy.tensormap import bind_map_fence, bind_tensormap
from dotcu.simulator.semantics.atomic import bind_atom, bind_atom_wide
from dotcu.simulator.semantics.builtins import bind_call
from dotcu.simulator.semantics.control import bind_stack
from dotcu.simulator.semantics.load_store import (
    bind_cvta,
    bind_getctarank,
    bind_isspacep,
    bind_ld,
    bind_mapa,
    bind_mov,
    bind_mov_wide,
    bind_st,
)
from dotcu.simulator.semantics.matrix.mma import bind_mma
from dotcu.simulator.semantics.matrix.tiles import (
    bind_ldmatrix,
    bind_movmatrix,
    bind_stmatrix,
    of_whole_warps,
)
from dotcu.simulator.semantics.matrix.wgmma import bind_setmaxnreg, bind_wgmma
from dotcu.simulator.semantics.matrix.wmma import bind_wmma
from dotcu.simulator.semantics.table import Table, bind_elementwise, find_operation
from dotcu.simulator.semantics.warp import WARP_INSTRUCTIONS, Rendezvous, bind_activemask

InstructionBinder = Callable[[FlatInstruction, Binding], InstructionStep | Rendezvous]


def _nothing(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """Make no step of an instruction that orders memory, waits, or hints: steps are in order already."""
    return lambda batch: None


def _crossed_by(flags: tuple[str, ...]) -> frozenset[str]:
    """The state spaces for which a fence.proxy.async joins the two proxies: all if it names none.

    Of "shared::cta" it is the memory of the block whose thread passes it.
    """
    spaces = {"shared", "global"}
    if flags[1].startswith("async::generic"):  # one direction: to the async proxy, of shared memory, or back
        return frozenset({"shared", "shared::cta"} if "release" in flags else ())
    if "shared::cta" in flags:
        return frozenset({"shared::cta"})
    named = spaces.intersection(flag.split("::")[0] for flag in flags) or spaces
    return frozenset({*named, "shared::cta"} if "shared" in named else named)


def bind_fence(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """membar and fence: what was seen holds from here on, what was done can be published.

    A fence of the async proxy orders the thread's own accesses alone.
    """
    flags = instruction.ptx.flags
    counted(flags, 1, MANY)
    if flags[:2] == ("proxy", "alias"):
        return _nothing(instruction, binding)  # no two addresses are of the same memory
    if flags[0] == "proxy" and flags[1:] and flags[1].startswith("async"):
        crosses = _crossed_by(flags)
        return lambda batch: batch.fence_proxies(*crosses)
    if flags[:2] == ("proxy", "tensormap::generic"):
        return bind_map_fence(instruction, binding)
    if flags[:1] == ("mbarrier_init",):
        return lambda batch: barriers(batch).cluster.release_inits()
    scope = next((f for f in flags if f in ("cta", "cluster", "sys")), "gpu")
    return lambda batch: batch.clocks.fence(batch.active, scope)


def _bind_dependency(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """griddepcontrol: launches run one after the other, and the wait is noted for the sanitizers."""
    if instruction.ptx.flags == ("launch_dependents",):
        return _nothing(instruction, binding)
    require(instruction.ptx.flags == ("wait",))

    def wait(batch: Batch) -> None:
        for note in batch.on.wait:
            note(batch)

    return wait


def _policy(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """createpolicy: an opaque value that only cache hints take, which move no byte."""
    target = binding.destination(counted(instruction.ptx.operands, 1, MANY)[0])
    require(target.dtype == np.uint64)
    return lambda batch: target.write(batch, np.zeros(1, np.uint64))


_MORE: Mapping[str, InstructionBinder] = {
    "mov": bind_mov,
    "cvt": bind_cvt,
    "cvta": bind_cvta,
    "setp": bind_setp,
    "lop3": bind_lop3,
    "createpolicy": _policy,
    **dict.fromkeys(("ld", "ldu"), bind_ld),
    "st": bind_st,
    **dict.fromkeys(("atom", "red"), bind_atom),
    "cp": bind_cp,
    "mbarrier": bind_mbarrier,
    "tensormap": bind_tensormap,
    "mapa": bind_mapa,
    "getctarank": bind_getctarank,
    "call": bind_call,
    **dict.fromkeys(STACK_OPCODES, bind_stack),
    "isspacep": bind_isspacep,
    "activemask": bind_activemask,
    **dict.fromkeys(("membar", "fence"), bind_fence),
    **dict.fromkeys(("addc", "subc", "madc"), bind_carry),
    **WARP_INSTRUCTIONS,
    "mma": of_whole_warps(bind_mma),
    "wmma": of_whole_warps(bind_wmma),
    "wgmma": bind_wgmma,
    "setmaxnreg": bind_setmaxnreg,
    "ldmatrix": of_whole_warps(bind_ldmatrix),
    "stmatrix": of_whole_warps(bind_stmatrix),
    "movmatrix": of_whole_warps(bind_movmatrix),
    **dict.fromkeys(("nanosleep", "prefetch", "prefetchu", "applypriority"), _nothing),
    **dict.fromkeys(("discard", "pmevent"), _nothing),
    "griddepcontrol": _bind_dependency,
}
# Of .b128, whose registers are pairs of 64 bits.
_WIDE: Mapping[str, InstructionBinder] = {
    "mov": bind_mov_wide,
    "ld": bind_ld,
    "st": bind_st,
    "atom": bind_atom_wide,
}
_ASYNC: Mapping[str, InstructionBinder] = {"st": bind_async_store, "red": bind_async_update}
_ELEMENTWISE: tuple[Table, ...] = (INTEGER, LOGIC, FLOAT, HALF, COMPARE, BIT_FIELDS, BYTES, PAIRS, VIDEO)


def bind(instruction: FlatInstruction, binding: Binding) -> InstructionStep | Rendezvous:
    """The step of an instruction.

    Raises:
        NotExecuted: No table has a row for it.
    """
    ptx = instruction.ptx
    if "cc" in ptx.flags:
        return bind_carry(instruction, binding)
    if "async" in ptx.flags and ptx.opcode in _ASYNC:
        return _ASYNC[ptx.opcode](instruction, binding)
    wide = ptx.types == ("b128",)
    if wide:
        instruction = instruction._replace(ptx=ptx._replace(types=("b64",)))
    more = (_WIDE if wide else _MORE).get(ptx.opcode)
    if more is not None:
        return more(instruction, binding)
    step = bind_elementwise(find_operation(_ELEMENTWISE, ptx), ptx, binding)
    if ptx.opcode in ("div", "rem") and ptx.type[0] in "us":
        return checked_division(step, instruction, binding)
    return step
