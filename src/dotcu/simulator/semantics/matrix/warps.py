"""Whole warps: what every matrix instruction needs before it can begin.

All 32 lanes hold parts of the matrices, so all of them have to be there. A lane that is still
elsewhere is waited for; one that has returned, or that never existed, is a finding, and its
warp does not take part.

Source: PTX ISA, "Warp Level Matrix Instructions": .sync and .aligned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import Operand, Sink
from dotcu.ptx.link import Placed
from dotcu.simulator.machine.chunk import WARP, Array, Chunk, Lanes
from dotcu.simulator.semantics.memory import elements_of
from dotcu.simulator.semantics.table import Destination, NotExecuted, Source, Step
from dotcu.simulator.semantics.warp import Rendezvous

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding

_EVERYONE = np.uint32(0xFFFFFFFF)


def of_whole_warps(step: Step, placed: Placed, binding: Binding) -> Rendezvous:
    """A rendezvous of all 32 lanes, whose step is run with whole warps only."""

    def run(chunk: Chunk) -> None:
        active = chunk.active
        if active is None or _are_whole(active):
            step(chunk)
            return
        chunk.active = _whole_only(chunk, placed, active)
        if len(chunk.active):
            step(chunk)
        chunk.active = active

    everyone = binding.constant(np.array([_EVERYONE]))
    return Rendezvous(run, placed, everyone)


def _are_whole(lanes: Lanes) -> bool:
    """Whether ascending lanes make up whole warps."""
    if len(lanes) % WARP:
        return False
    first, last = lanes[::WARP], lanes[WARP - 1 :: WARP]
    return bool(((first % WARP == 0) & (last - first == WARP - 1)).all())


def _whole_only(chunk: Chunk, placed: Placed, lanes: Lanes) -> Lanes:
    """Report the lanes whose warp lacks some; the others."""
    whole = (chunk.warp_bits(lanes) == _EVERYONE)[lanes // WARP]
    alone = lanes[~whole]
    here = int(np.count_nonzero(alone // WARP == alone[0] // WARP))
    chunk.grid.report(
        chunk,
        "barrier",
        placed,
        alone,
        message=f"a matrix instruction that only {here} of a warp's {WARP} threads execute; every "
        "thread holds a part of the matrices, so all have to. The others returned, are kept out by a "
        "condition, or do not exist: take it out of the condition, and let the block be a multiple of "
        f"{WARP} threads.",
    )
    left: Lanes = lanes[whole]
    return left


def sources_of(operand: Operand, count: int, type_: str, binding: Binding) -> list[Source]:
    """The registers of a fragment that is read.

    Raises:
        NotExecuted: They are not as many as the fragment has.
    """
    elements = elements_of(operand)
    if len(elements) != count:
        raise NotExecuted
    return [binding.source(element, type_) for element in elements]


def targets_of(operand: Operand, count: int, word_bytes: int, binding: Binding) -> list[Destination]:
    """The registers of a fragment that is written, as `sources_of`."""
    elements = elements_of(operand)
    targets = [binding.destination(element) for element in elements]
    sizes = {t.dtype.itemsize for t, e in zip(targets, elements, strict=True) if not isinstance(e, Sink)}
    if len(elements) != count or not sizes <= {word_bytes}:
        raise NotExecuted
    return targets


def read(chunk: Chunk, sources: Sequence[Source]) -> list[Array]:
    """The active lanes' values, one element a lane."""
    count = chunk.count()
    values = []
    for slot, adapt in sources:
        value = chunk.read(slot)
        value = value if adapt is None else adapt(value)
        values.append(value if value.size == count else np.repeat(value, count))
    return values


def write(chunk: Chunk, targets: Sequence[Destination], values: Sequence[Array]) -> None:
    """Set registers of the active lanes to fresh arrays of words."""
    for (slot, dtype), value in zip(targets, values, strict=True):
        same_size = dtype.itemsize == value.itemsize
        chunk.write(slot, value.view(dtype) if same_size else value.astype(dtype))
