"""mov in all its forms: values, addresses, packing and unpacking, clocks.

Source: PTX ISA, "Data Movement and Conversion Instructions: mov".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import SPECIAL_REGISTERS, TYPE_BYTES, Instruction, Sink, Special, Vector
from dotcu.simulator.decoding.inlining import FlatInstruction
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.machine.shape import WARP, Array
from dotcu.simulator.semantics.table import (
    NotExecuted,
    Operation,
    Step,
    bind_elementwise,
    dtype_of,
    step_of,
    stored,
    unsigned,
)

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding


def copied(a: Array) -> Array:
    """The value, in an array of its own; a single element is never written to, so it is shared."""
    return a if a.size == 1 else a.copy()


def bind_mov(placed: FlatInstruction, binding: Binding) -> Step:
    """mov."""
    instruction = placed.instruction
    if len(instruction.operands) != 2 or len(instruction.types) != 1 or instruction.flags:
        raise NotExecuted
    target, source = instruction.operands
    if isinstance(source, Vector):
        return _pack(instruction, source, binding)
    if isinstance(target, Vector):
        return _unpack(instruction, target, binding)
    if isinstance(source, Special) and source.name in CLOCKS:
        return _clock(instruction, source.name, binding)
    type_ = instruction.types[0]
    if isinstance(source, Special) and type_[0] in "bus":
        return _special(instruction, source, binding)
    return bind_elementwise(Operation(copied, type_, (type_,)), instruction, binding)


def _special(instruction: Instruction, source: Special, binding: Binding) -> Step:
    """A special register; a mov that is narrower than it takes its low bits."""
    type_ = instruction.types[0]
    target = binding.destination(instruction.operands[0])
    return step_of(Operation(copied, type_, (type_,)), target, [binding.wide_source(source, type_)])


def _clock(instruction: Instruction, name: str, binding: Binding) -> Step:
    read = CLOCKS[name]
    dtype = unsigned(TYPE_BYTES[instruction.types[0]])
    target = binding.destination(instruction.operands[0])
    finish = stored(copied, dtype, target.dtype)

    def step(chunk: Chunk) -> None:
        chunk.write(target.slot, finish(np.full(1, read(chunk), np.uint64).astype(dtype)))

    return step


def _pack(instruction: Instruction, vector: Vector, binding: Binding) -> Step:
    """mov.b32 d, {a, b}: the first element is the lowest."""
    size = TYPE_BYTES[instruction.types[0]]
    count = len(vector.elements)
    if count == 0 or size % count or size > 8:
        raise NotExecuted
    width = 8 * size // count
    whole = unsigned(size)
    sources = [binding.narrow_source(e, f"b{width}") for e in vector.elements]
    target = binding.destination(instruction.operands[0])
    finish = stored(copied, whole, target.dtype)

    def step(chunk: Chunk) -> None:
        result: Array = np.zeros(1, whole)
        for place, source in enumerate(sources):
            value = source.read(chunk).astype(whole)
            result = result | (value << whole.type(width * place))
        chunk.write(target.slot, finish(result))

    return step


def _unpack(instruction: Instruction, target: Vector, binding: Binding) -> Step:
    """mov.b32 {a, b}, d; an element `_` is dropped."""
    type_ = instruction.types[0]
    size = TYPE_BYTES[type_]
    count = len(target.elements)
    if count == 0 or size % count or size > 8:
        raise NotExecuted
    part = unsigned(size // count)
    source = binding.narrow_source(instruction.operands[1], f"b{8 * size}")
    moves = []
    for place, element in enumerate(target.elements):
        if not isinstance(element, Sink):
            to = binding.destination(element)
            moves.append((to.slot, place, stored(copied, part, to.dtype)))

    def step(chunk: Chunk) -> None:
        parts = np.ascontiguousarray(source.read(chunk)).view(part).reshape(-1, count)
        for slot, place, finish in moves:
            chunk.write(slot, finish(parts[:, place].copy()))

    return step


def bind_mov_wide(placed: FlatInstruction, binding: Binding) -> Step:
    """mov.b128: a copy, or two 64-bit registers packed or unpacked; the first one is low."""
    to, given = [operand.elements for operand in placed.instruction.operands if isinstance(operand, Vector)]
    targets = [binding.destination(element) for element in to]
    sources = [binding.source(element, "b64") for element in given]
    if len(sources) != 2 or any(target.dtype.itemsize != 8 for target in targets):
        raise NotExecuted

    def step(chunk: Chunk) -> None:
        values = [copied(source.read(chunk)) for source in sources]
        for target, value in zip(targets, values, strict=True):
            chunk.write(target.slot, value.view(target.dtype))

    return step


# Special registers as arrays.
#
# Source: PTX ISA, "Special Registers" (chapter 10).


# What a device is said to have; kernels ask only in order to size or place work.
MULTIPROCESSORS = 132
_AXES = "xyz"

Maker = Callable[[Chunk], "Array | int"]


def _thread(axis: int) -> Maker:
    def make(chunk: Chunk) -> Array | int:
        x, y, _ = block = chunk.shape.block
        if block[axis] == 1:
            return 0
        linear = np.arange(chunk.shape.pitch, dtype=np.uint32)
        by_axis = (linear % x, linear // x % y, linear // (x * y))
        return np.tile(by_axis[axis].astype(np.uint32), chunk.shape.blocks)

    return make


def _block(axis: int) -> Maker:
    def make(chunk: Chunk) -> Array | int:
        shape = chunk.shape
        x, y, _ = grid = shape.grid
        if grid[axis] == 1:
            return 0
        linear = np.arange(shape.first, shape.first + shape.blocks)
        by_axis = (linear % x, linear // x % y, linear // (x * y))[axis].astype(np.uint32)
        return by_axis if shape.blocks == 1 else np.repeat(by_axis, shape.pitch)

    return make


def _lane(chunk: Chunk) -> Array:
    return np.tile(np.arange(WARP, dtype=np.uint32), chunk.lanes // WARP)


def _warp(chunk: Chunk) -> Array | int:
    warps = chunk.shape.pitch // WARP
    if warps == 1:
        return 0
    return np.tile(np.repeat(np.arange(warps, dtype=np.uint32), WARP), chunk.shape.blocks)


def _lane_mask(mask: Callable[[int], int]) -> Maker:
    def make(chunk: Chunk) -> Array:
        masks = np.array([mask(lane) & 0xFFFFFFFF for lane in range(WARP)], np.uint32)
        return np.tile(masks, chunk.lanes // WARP)

    return make


def _multiprocessor(chunk: Chunk) -> Array:
    shape = chunk.shape
    linear = np.arange(shape.first, shape.first + shape.blocks) % MULTIPROCESSORS
    return np.repeat(linear.astype(np.uint32), shape.pitch)


_MAKERS: Mapping[str, Maker] = {
    **{f"tid.{a}": _thread(i) for i, a in enumerate(_AXES)},
    **{f"ctaid.{a}": _block(i) for i, a in enumerate(_AXES)},
    **{f"clusterid.{a}": _block(i) for i, a in enumerate(_AXES)},
    "ntid.x": lambda chunk: chunk.shape.block[0],
    "ntid.y": lambda chunk: chunk.shape.block[1],
    "ntid.z": lambda chunk: chunk.shape.block[2],
    "nctaid.x": lambda chunk: chunk.shape.grid[0],
    "nctaid.y": lambda chunk: chunk.shape.grid[1],
    "nctaid.z": lambda chunk: chunk.shape.grid[2],
    "nclusterid.x": lambda chunk: chunk.shape.grid[0],
    "nclusterid.y": lambda chunk: chunk.shape.grid[1],
    "nclusterid.z": lambda chunk: chunk.shape.grid[2],
    **{f"cluster_ctaid.{a}": lambda chunk: 0 for a in _AXES},
    **{f"cluster_nctaid.{a}": lambda chunk: 1 for a in _AXES},
    "cluster_ctarank": lambda chunk: 0,
    "cluster_nctarank": lambda chunk: 1,
    "is_explicit_cluster": lambda chunk: 0,
    "laneid": _lane,
    "warpid": _warp,
    "nwarpid": lambda chunk: chunk.shape.pitch // WARP,
    "smid": _multiprocessor,
    "nsmid": lambda chunk: MULTIPROCESSORS,
    "gridid": lambda chunk: 1,
    "lanemask_eq": _lane_mask(lambda lane: 1 << lane),
    "lanemask_le": _lane_mask(lambda lane: (2 << lane) - 1),
    "lanemask_lt": _lane_mask(lambda lane: (1 << lane) - 1),
    "lanemask_ge": _lane_mask(lambda lane: -(1 << lane)),
    "lanemask_gt": _lane_mask(lambda lane: -(2 << lane)),
    "dynamic_smem_size": lambda chunk: chunk.grid.smem_bytes,
    "total_smem_size": lambda chunk: chunk.grid.shared_bytes,
    "aggr_smem_size": lambda chunk: chunk.grid.shared_bytes,
    "reserved_smem_offset_begin": lambda chunk: chunk.grid.reserved_offset,
    "reserved_smem_offset_end": lambda chunk: chunk.grid.allotted_bytes,
    "reserved_smem_offset_cap": lambda chunk: chunk.grid.allotted_bytes - chunk.grid.reserved_offset,
    # Where a cooperative launch keeps what its grid-wide barrier counts (cooperative_groups.h).
    **{f"envreg{number}": lambda chunk: 0 for number in range(32)},
    "envreg1": lambda chunk: chunk.grid.workspace >> 32,
    "envreg2": lambda chunk: chunk.grid.workspace & 0xFFFFFFFF,
    # Two pieces that do not meet; cooperative groups take less than 512 bytes of theirs.
    "reserved_smem_offset_0": lambda chunk: chunk.grid.reserved_offset,
    "reserved_smem_offset_1": lambda chunk: chunk.grid.reserved_offset + 512,
    "current_graph_exec": lambda chunk: 0,
}

# Read again by each instruction that names them: a loop may wait for them to advance.
CLOCKS: Mapping[str, Callable[[Chunk], int]] = {
    "clock": lambda chunk: chunk.grid.steps & 0xFFFFFFFF,
    "clock_hi": lambda chunk: chunk.grid.steps >> 32,
    "clock64": lambda chunk: chunk.grid.steps,
    "globaltimer": lambda chunk: time.time_ns(),
    "globaltimer_lo": lambda chunk: time.time_ns() & 0xFFFFFFFF,
    "globaltimer_hi": lambda chunk: time.time_ns() >> 32,
}


def is_kept(name: str) -> bool:
    """Return whether a special register is constant for a whole launch."""
    return name in _MAKERS


def special_arrays(chunk: Chunk, wanted: Sequence[tuple[str, int]]) -> None:
    """Set the registers in which a kernel keeps the special registers that it reads."""
    for name, slot in wanted:
        value = _MAKERS[name](chunk)
        dtype = dtype_of(SPECIAL_REGISTERS[name])
        chunk.registers[slot] = value if isinstance(value, np.ndarray) else np.full(1, value, dtype)
