"""Special registers as arrays.

Source: PTX ISA, "Special Registers" (chapter 10).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from dotcu.ptx.instructions import SPECIAL_REGISTERS
from dotcu.simulator.machine.shape import WARP, split
from dotcu.simulator.machine.state import Chunk
from dotcu.simulator.program.binding import dtype_of
from dotcu.simulator.run import Array

# What a device is said to have; kernels ask only in order to size or place work.
MULTIPROCESSORS = 132

Value = Callable[[Chunk], "Array | int"]


def _thread(chunk: Chunk, axis: int) -> Array | int:
    shape = chunk.shape
    if shape.block[axis] == 1:
        return 0
    return np.tile(split(np.arange(shape.pitch), shape.block)[axis].astype(np.uint32), shape.blocks)


def _of_blocks(chunk: Chunk, extent: int, values: Array) -> Array | int:
    """Give each lane its block's value, of an extent; one value if there is one block, or nothing but 0."""
    if extent == 1:
        return 0
    values = values.astype(np.uint32)
    return values if len(values) == 1 else np.repeat(values, chunk.shape.pitch)


def _block(chunk: Chunk, axis: int) -> Array | int:
    shape = chunk.shape
    cluster, rank = shape.numbers()
    inner = split(rank, shape.cluster)[axis]
    values = split(cluster, shape.clusters)[axis] * shape.cluster[axis] + inner
    return _of_blocks(chunk, shape.grid[axis], values)


def _cluster(chunk: Chunk, axis: int) -> Array | int:
    clusters = chunk.shape.clusters
    return _of_blocks(chunk, clusters[axis], split(chunk.shape.numbers()[0], clusters)[axis])


def _in_cluster(chunk: Chunk, axis: int) -> Array | int:
    cluster = chunk.shape.cluster
    return _of_blocks(chunk, cluster[axis], split(chunk.shape.numbers()[1], cluster)[axis])


def _of_warps(row: Array) -> Value:
    """Make the same 32 values for every warp."""
    return lambda chunk: np.tile(row.astype(np.uint32), chunk.lanes // WARP)


def _warp(chunk: Chunk) -> Array | int:
    warps = chunk.shape.pitch // WARP
    if warps == 1:
        return 0
    return np.tile(np.repeat(np.arange(warps, dtype=np.uint32), WARP), chunk.shape.blocks)


def _multiprocessor(chunk: Chunk) -> Array:
    shape = chunk.shape
    linear = np.arange(shape.first, shape.first + shape.blocks) % MULTIPROCESSORS
    return np.repeat(linear.astype(np.uint32), shape.pitch)


_AXES = tuple(enumerate("xyz"))
_BIT = np.int64(1) << np.arange(WARP)
# Of the special registers that are constant for a whole launch.
SPECIAL_VALUES: Mapping[str, Value] = {
    **{f"tid.{a}": partial(_thread, axis=i) for i, a in _AXES},
    **{f"ctaid.{a}": partial(_block, axis=i) for i, a in _AXES},
    **{f"clusterid.{a}": partial(_cluster, axis=i) for i, a in _AXES},
    **{f"cluster_ctaid.{a}": partial(_in_cluster, axis=i) for i, a in _AXES},
    **{f"ntid.{a}": partial(lambda chunk, axis: chunk.shape.block[axis], axis=i) for i, a in _AXES},
    **{f"nctaid.{a}": partial(lambda chunk, axis: chunk.shape.grid[axis], axis=i) for i, a in _AXES},
    **{f"nclusterid.{a}": partial(lambda chunk, axis: chunk.shape.clusters[axis], axis=i) for i, a in _AXES},
    **{
        f"cluster_nctaid.{a}": partial(lambda chunk, axis: chunk.shape.cluster[axis], axis=i)
        for i, a in _AXES
    },
    "cluster_ctarank": lambda chunk: _of_blocks(chunk, chunk.shape.cluster_blocks, chunk.shape.numbers()[1]),
    "cluster_nctarank": lambda chunk: chunk.shape.cluster_blocks,
    "is_explicit_cluster": lambda chunk: chunk.grid.cluster is not None,
    "laneid": _of_warps(np.arange(WARP)),
    "warpid": _warp,
    "nwarpid": lambda chunk: chunk.shape.pitch // WARP,
    "smid": _multiprocessor,
    "nsmid": lambda chunk: MULTIPROCESSORS,
    "gridid": lambda chunk: 1,
    "lanemask_eq": _of_warps(_BIT),
    "lanemask_le": _of_warps(2 * _BIT - 1),
    "lanemask_lt": _of_warps(_BIT - 1),
    "lanemask_ge": _of_warps(-_BIT),
    "lanemask_gt": _of_warps(-2 * _BIT),
    "dynamic_smem_size": lambda chunk: chunk.grid.smem_bytes,
    "total_smem_size": lambda chunk: chunk.grid.shared_bytes,
    "aggr_smem_size": lambda chunk: chunk.grid.shared_bytes,
    "reserved_smem_offset_begin": lambda chunk: chunk.grid.reserved_offset,
    "reserved_smem_offset_end": lambda chunk: chunk.grid.allotted_bytes,
    "reserved_smem_offset_cap": lambda chunk: chunk.grid.allotted_bytes - chunk.grid.reserved_offset,
    # Where a cooperative launch keeps what its grid-wide barrier counts (cooperative_groups.h).
    **{f"envreg{number}": lambda chunk: 0 for number in range(32)},
    "envreg1": lambda chunk: _workspace(chunk) >> 32,
    "envreg2": lambda chunk: _workspace(chunk) & 0xFFFFFFFF,
    # Two pieces that do not meet; cooperative groups take less than 512 bytes of theirs.
    "reserved_smem_offset_0": lambda chunk: chunk.grid.reserved_offset,
    "reserved_smem_offset_1": lambda chunk: chunk.grid.reserved_offset + 512,
    "current_graph_exec": lambda chunk: 0,
}


def _workspace(chunk: Chunk) -> int:
    chunk.grid.asks_workspace = True
    return chunk.grid.workspace


# Read again by each instruction that names them: a loop may wait for them to advance.
CLOCKS: Mapping[str, Callable[[Chunk], int]] = {
    "clock": lambda chunk: chunk.grid.steps & 0xFFFFFFFF,
    "clock_hi": lambda chunk: chunk.grid.steps >> 32,
    "clock64": lambda chunk: chunk.grid.steps,
    "globaltimer": lambda chunk: time.time_ns(),
    "globaltimer_lo": lambda chunk: time.time_ns() & 0xFFFFFFFF,
    "globaltimer_hi": lambda chunk: time.time_ns() >> 32,
}


def special_arrays(chunk: Chunk, wanted: Mapping[str, int]) -> None:
    """Set the registers in which a kernel keeps the special registers that it reads."""
    for name, slot in wanted.items():
        value = SPECIAL_VALUES[name](chunk)
        dtype = dtype_of(SPECIAL_REGISTERS[name])
        chunk.registers[slot] = value if isinstance(value, np.ndarray) else np.full(1, value, dtype)
