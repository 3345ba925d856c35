"""Addresses in a cluster, which is always one block: the simulator launches no larger ones.

Source: PTX ISA, "Data Movement and Conversion Instructions: mapa, getctarank".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.link import Placed
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.semantics.table import NotExecuted, Step

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding


def bind_mapa(placed: Placed, binding: Binding) -> Step:
    """mapa: the address of a shared variable in another block of the cluster."""
    instruction = placed.instruction
    if instruction.flags not in ((), ("shared::cluster",)) or instruction.types not in (("u32",), ("u64",)):
        raise NotExecuted
    target = binding.destination(instruction.operands[0])
    address = binding.source(instruction.operands[1], instruction.types[0])
    rank = binding.source(instruction.operands[2], "u32")

    def step(chunk: Chunk) -> None:
        others = np.broadcast_to(chunk.read(rank.slot) != 0, chunk.count())
        if others.any():
            chunk.grid.report(
                chunk,
                "out-of-bounds",
                placed,
                chunk.numbers()[others],
                message=f"an address in block {chunk.read(rank.slot).max()} of a cluster of one block. "
                "The simulator has no larger clusters: ask for the size of the cluster.",
            )
        chunk.write(target.slot, chunk.read(address.slot).copy())

    return step


def bind_getctarank(placed: Placed, binding: Binding) -> Step:
    """getctarank: the block of the cluster that an address is in."""
    instruction = placed.instruction
    if instruction.flags not in ((), ("shared::cluster",)) or instruction.types not in (("u32",), ("u64",)):
        raise NotExecuted
    target = binding.destination(instruction.operands[0])

    def step(chunk: Chunk) -> None:
        chunk.write(target.slot, np.zeros(1, target.dtype))

    return step
