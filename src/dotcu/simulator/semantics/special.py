"""Special registers as arrays.

Source: PTX ISA, "Special Registers" (chapter 10).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dotcu.ptx.specials import SPECIAL_REGISTERS
from dotcu.simulator.machine.chunk import WARP, Array, Chunk
from dotcu.simulator.semantics.table import dtype_of

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

# Read anew by each instruction that names them: a loop may wait for them to advance.
CLOCKS: Mapping[str, Callable[[Chunk], int]] = {
    "clock": lambda chunk: chunk.grid.steps & 0xFFFFFFFF,
    "clock_hi": lambda chunk: chunk.grid.steps >> 32,
    "clock64": lambda chunk: chunk.grid.steps,
    "globaltimer": lambda chunk: time.time_ns(),
    "globaltimer_lo": lambda chunk: time.time_ns() & 0xFFFFFFFF,
    "globaltimer_hi": lambda chunk: time.time_ns() >> 32,
}


def is_kept(name: str) -> bool:
    """Whether a special register has a value that holds for a whole launch."""
    return name in _MAKERS


def special_arrays(chunk: Chunk, wanted: Sequence[tuple[str, int]]) -> None:
    """Set the registers in which a kernel keeps the special registers that it reads."""
    for name, slot in wanted:
        value = _MAKERS[name](chunk)
        dtype = dtype_of(SPECIAL_REGISTERS[name])
        chunk.registers[slot] = value if isinstance(value, np.ndarray) else np.full(1, value, dtype)
